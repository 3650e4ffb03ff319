"""Forms in which secrets stand in files, commands and messages, and text that holds none.

A form is text with `{P}`, `{K}` and their like in the place of the secret; the secrets are put
together here, so that no scanner takes a test for a leak.
"""

import base64
import re

P = "hunter2" + "-4Kx9"  # a password
K = "4f9Kq2LmZ8vT" + "x1Wc7RbN0sYd"  # a key
L = "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY"  # of AWS, with slashes
H = "9f86d081884c7d65" * 2  # hex
B = base64.b64encode(f"ada:{P}".encode()).decode()  # of Basic
Z = base64.b64encode(
    b"\x8e\x01\xf2 some 64 bytes of a key, which azure has in base64 \x99\x07"
).decode()
U = "6f1c2d3e-4b5a-4978" + "-8c6d-7e8f90a1b2c3"
J = ".".join(("eyJhbGciOiJIUzI1NiJ9", "eyJzdWIiOiIxMjM0NSJ9", "dBjftJeZ4CVP" + "mB92K27uhbUJU1p1r"))
LINES = (
    "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7" + "VJTUt9Us8cKj",
    "Fq2w" * 16,
    "pQ==",
)
SECRETS = {"P": P, "K": K, "L": L, "H": H, "B": B, "Z": Z, "U": U, "J": J}
_KIND = "PRIVATE " + "KEY"
_PEM = f"-----BEGIN {{}}{_KIND}-----\n" + "\n".join(LINES) + f"\n-----END {{}}{_KIND}-----\n"

# Each of them with one secret, or more.
FORMS = (
    # environment, shells, containers
    "DB_PASSWORD={P}", "export AWS_SECRET_ACCESS_KEY={L}", "GITHUB_TOKEN={K}", "MYSQL_PWD={P}",
    "export API_TOKEN='{P}'", 'SECRET_KEY="{K}"', "PGPASSWORD={P} psql -h db", "set DB_PASSWORD={P}",
    "setx API_KEY {K}", "$env:DB_PASSWORD = '{P}'", "set -x GITHUB_TOKEN {K}", "setenv API_TOKEN {K}",
    "ENV DB_PASSWORD={P}", "ENV API_TOKEN {K}", "ARG NPM_TOKEN={K}", "docker run -e DB_PASS={P} app",
    "Environment=API_SECRET={K}", "declare -x STRIPE_SECRET={K}", "DB_PASSWORD=swordfish",
    'DB_PASSWORD="correct horse battery"', "SESSION_SECRET=p@ss;w|rd&99", "SMTP_PASS={P}",
    # JSON, YAML, TOML, INI, XML, properties
    '{"password": "{P}"}', '{"clientSecret": "{K}"}', "{'api_key': '{K}'}", "client_secret={K}",
    'password: {P}', "password: swordfish", "  api_key: {K}", 'token: "{K}"', "access_token = {K}",
    'api-key = "{K}"', "password={P}", "spring.datasource.password={P}", "<password>{P}</password>",
    '<add key="ApiKey" value="{K}"/>', "<key>ApiKey</key><string>{K}</string>",
    "- name: DB_PASSWORD\n  value: {P}", '{"name": "DB_PASSWORD", "value": "{P}"}',
    '{\\"password\\": \\"{P}\\"}', "password: |\n  {P}", '"password":\n  "{P}"',
    'storePassword "{P}"', "passphrase = correct horse battery staple",
    # programs
    'password = "{P}"', "apiKey: '{K}',", "'password' => '{P}',", 'secret := "{K}"',
    "define('DB_PASSWORD', '{P}');", 'auth=("ada", "x"), headers={"x-api-key": "{K}"}',
    'connect(password="{P}", port=1)', 'token=b"{K}"', 'String password = "{P}";',
    # headers
    "Authorization: Basic {B}", "Authorization: Bearer {K}", "authorization: token {K}",
    "curl -H 'Authorization: Bearer {J}' https://a.example", "x-api-key: {K}", "X-Auth-Token: {K}",
    "Cookie: session={K}; theme=dark", "Set-Cookie: sid={K}; HttpOnly", "PRIVATE-TOKEN: {K}",
    "Proxy-Authorization: Basic {B}", "Ocp-Apim-Subscription-Key: {H}", "bearer {K}",
    # addresses and connection strings
    "https://ada:{P}@example.org/x", "postgres://app:{P}@db:5432/app", "redis://:{P}@cache:6379",
    "git clone https://{K}@git.example/a", "https://a.example/x?access_token={K}&page=2",
    "https://x.blob.core.windows.net/a?sv=2022&sig={K}%3D", "app:{P}@tcp(db:3306)/app",
    "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={Z};EndpointSuffix=core",
    "Server=db;User Id=sa;Password={P};Encrypt=yes", "Endpoint=sb://a/;SharedAccessKey={Z}",
    # command lines
    "curl -u ada:{P} https://a.example", "tool --password {P}", "tool --api-key={K}",
    "sshpass -p {P} ssh a", "mysql -u root -p{P} app", "redis-cli -h a -a {P} ping",
    "kubectl create secret generic a --from-literal=password={P}", "New-User -Password '{P}'",
    "ALTER USER ada IDENTIFIED BY '{P}'", "ConvertTo-SecureString '{P}' -AsPlainText",
    # files of tools
    "//npm.example.com/:_authToken={U}", "_auth={B}", "machine a.example login ada password {P}",
    "db.example:5432:app:ada:{P}", '{"auths": {"a.example": {"auth": "{B}"}}}', "requirepass {P}",
    "PrivateKey = {Z}", "client-key-data: {Z}", "root:$6$saltsalt$" + "abcdefghijklmnop/qrstuv:19000",
    "aws_secret_access_key = {L}", "api_token: {H}",
    # by their shape
    "sk-proj-{K}", "sk_live_{K}", "rk_test_{K}", "AKIA" + "IOSFODNN7EXAMPLE", "ghp_{K}{K}",
    "github_pat_{K}", "glpat-{K}", "xoxb-123456789-{K}", "xapp-1-{K}", "hf_{K}", "npm_{K}{K}"[:34],
    "https://hooks.slack.com/services/T00000000/B00000000/{K}", "pypi-{K}", "dckr_pat_{K}",
    "https://discord.com/api/webhooks/123456/{K}{K}", "shpat_{H}", "SG.{K}.{K}", "hvs.{K}", "{J}",
    "AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q", "ya29.{K}", "GOCSPX-{K}", "123456789:AA" + "E" * 33,
    # keys
    _PEM.format("", ""), _PEM.format("OPENSSH ", "OPENSSH "), _PEM.format("RSA ", "RSA ")[:150],
    '{"type": "service_account", "private_key": "' + _PEM.format("", "").replace("\n", "\\n") + '"}',
    _PEM.format("EC ", "EC ").partition("\n")[2],
)  # fmt: skip


def filled(form: str) -> str:
    """Return a form with its secrets."""
    for name, secret in SECRETS.items():
        form = form.replace("{" + name + "}", secret)
    return form


def secrets_of(form: str) -> tuple[str, ...]:
    """Return what may not be left of a form."""
    named = [secret for name, secret in SECRETS.items() if "{" + name + "}" in form]
    others = re.findall(
        r"swordfish|horse battery|w\|rd&99|AKIA\w+|AIza\w+|qrstuv|AAE+|MIIEvQ\w+|(?:Fq2w){4,}", form
    )
    return (*named, *others)


ORDINARY = (
    # names that begin as a token of some service does
    "mark-r8-talk-t0-c0", "git switch r8-fix-the-build-2", "fw-update-count-3", "fw_update_count",
    "rnd-1-of-the-simulations", "phx-west-2-loadbalancer", "gsk-annual-report-2025",
    # prose
    "The password is asked for on the terminal; a token is a piece of text.",
    "Password: required", "password: see below", "Enter your password: ", "token: the next word",
    "Set GITHUB_TOKEN to your token, or API_KEY=<your key>.", "Basic authentication is off",
    "Bearer tokens expire after 3600 seconds", "Cookies: we use none. cookie: a small file",
    "authorization: required for admins", "the secret: start early", "auth: the server refused it",
    "error: expected one of `!` or `::`, found `token`", "Unexpected token '<' in JSON at position 0",
    "Authorization: Bearer <token>", "Authorization: Bearer $TOKEN", "Cookie: name=value",
    "error: password required for ada to log in", "PASS: tests/test_pass.py", "12 passed, 1 failed",
    "use https://user:password@host/ or https://<user>:<password>@host/", "pass: 1204 fail: 3",
    "Your password must have at least 8 characters", "max_tokens: 4096, total tokens=12000",
    # Python
    'password = os.environ["DB_PASSWORD1"]', "token: str", "token: str | None = None",
    "password: SecretStr", "def login(user: str, password: str) -> Token:", "token = next(tokens)",
    "token = self._tokens[at]", "secret = secrets.token_hex(32)", "password=password, token=token",
    'api_key = config["providers"]["key2"]', "password = getpass.getpass()", "token = tokens.pop()",
    'parser.add_argument("--password", help="the password to use")', "secret_key = settings.SECRET_KEY",
    'if token.type == "NAME1":', "key = hashlib.sha256(data).hexdigest()", 'eos_token = "</s>"',
    '{"pad_token": "[PAD]", "bos_token_id": 151643}', "is_token = token is not None",
    'headers["Authorization"] = f"Bearer {token}"', 'url = f"postgres://{user}:{password}@{host}"',
    "password=None, token=''", "PASSWORD = 1", "TOKEN_TYPE = 'id_token2'", "pwd = Path.cwd()",
    'raise ValueError("password: 8 characters or more")', "credentials = load_credentials(path)",
    # others
    "const token = req.headers['x-token1'];", "let token: &str = iter.next()?;", "password: string;",
    "interface A { token?: string; password: string }", "token := lexer.Next1()", "char *token = strtok(s, d);",
    'password: t("login.password1")', '"password": "Password"', "private_key: Option<Vec<u8>>,",
    "type Config struct { Password string `json:\"password\"` }", "'password' => 'required|min:8',",
    'fn parse(token: Token2) -> Result<Token2>', "password = \"${var.db_password}\"", "this.token = token;",
    # shells and settings
    "PWD=/home/ada/project", "OLDPWD=/usr/lib/x86_64", "TOKEN=$(cat /run/secrets/token1)", "TOKEN=${TOKEN:-}",
    "API_KEY=your-api-key-here", "PASSWORD=changeme_", "password_file = /run/secrets/db1",
    "SSH_AUTH_SOCK=/run/user/1000/keyring/ssh", "token_limit = 4096", "session_timeout=30m",
    "docker run -u 1000:1000 image", "password: ${{ secrets.DB_PASSWORD }}", "secretName: db-tls-2",
    "password: !vault |", "tokenizer = tiktoken", "public_key = ssh-ed25519", "token = abcdefgh",
    "private_key: Ed25519PrivateKey", "cookies: RequestsCookieJar | None",
    "string sk-ecdsa-sha2-nistp256@openssh.com", "key_file=/etc/ssl/server1.key", "    - secret: my-secret", "max_token=512", "secret: null",
    # ids and data
    "commit 3f786850e387550fdab836ed7e6dc881de23001b", "sha256:" + "ab12" * 16,
    "550e8400-e29b-41d4-a716-446655440000", '"integrity": "sha512-' + "Ab3/" * 21 + 'Ab=="',
    "requests==2.31.0 --hash=sha256:" + "0a1b2c3d" * 8, "data:image/png;base64,iVBORw0KGgo" + "AAAb" * 40,
    "checksum = \"" + "9a8b7c6d" * 8 + '"', "ETag: W/\"33a64df551425fcc55e4d42a148795d9f25f89d4\"",
    "ssh-rsa AAAAB3NzaC1yc2E" + "AAAADAQAB" * 12 + " ada@example", "10:5432:x", "total $5 $6 and $1",
    "-----BEGIN CERTIFICATE-----\n" + "MIIDdzCCAl+gAwIBAgIEAgAAuT" * 2 + "\n-----END CERTIFICATE-----",
    "resolved \"https://npm.example.com/@babel/core/-/core-7.1.0.tgz#" + "0f1e" * 10 + '"',
    "git@github.com:ada/project.git", "ssh://git@example.org:22/a", "http://[::1]:8080/a@b",
    "x86_64-unknown-linux-gnu-gcc-13.2.0-1ubuntu3", "http://localhost:8080/path?x=1&token=",
    "drwxr-xr-x 2 root root 4096 Nov 21 23:49 project", "2026-11-21T08:00:00Z INFO token requested",
    "E   AssertionError: assert 3 == 4", "cache-key: linux-py3.12-" + "5d41402a" * 4,
)  # fmt: skip
