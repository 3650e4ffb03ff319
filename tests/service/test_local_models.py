"""What the engine is told of a model by the configuration in force."""

from pathlib import Path
from typing import Any

import msgspec

from clawd.config.engine import EngineSection, ModelProfile
from clawd.config.load import load
from clawd.config.render import toml_value
from clawd.engine.models import EMBEDDED
from clawd.engine.protocol import LoraAdapter, ModelConfig, Sampling
from clawd.engine.worker.sampler import plan_stages
from clawd.providers.local import LocalModel
from clawd.providers.presets import PRESETS
from clawd.service.state import LocalModels
from tests.support.rows import each_row

MODEL = "My-Model-8B"

# key, value in the file, name for the engine, value for the engine
OF_LOADING: list[tuple[str, Any, str, Any]] = [
    ("ctx_size", 2048, "n_ctx", 2048),
    ("n_batch", 1024, "n_batch", 1024),
    ("n_ubatch", 64, "n_ubatch", 64),
    ("n_threads", 3, "n_threads", 3),
    ("n_parallel", 9, "n_parallel", 9),
    ("n_gpu_layers", 12, "n_gpu_layers", 12),
    ("cache_type_k", "q8_0", "cache_type_k", "q8_0"),
    ("cache_type_v", "bf16", "cache_type_v", "bf16"),
    ("flash_attn", "on", "flash_attn", "on"),
    ("kv_unified", "off", "kv_unified", "off"),
    ("mlock", True, "mlock", True),
    ("mmap", False, "mmap", False),
    ("split_mode", "tensor", "split_mode", "tensor"),
    ("rope_scaling", "yarn", "rope_scaling", "yarn"),
    ("rope_freq_scale", 0.25, "rope_freq_scale", 0.25),
    ("yarn_orig_ctx", 4096, "yarn_orig_ctx", 4096),
    ("image_max_tokens", 256, "image_max_tokens", 256),
    (
        "lora",
        ["/adapters/a.gguf", "/adapters/b.gguf:0.5"],
        "lora",
        (LoraAdapter(path="/adapters/a.gguf"), LoraAdapter(path="/adapters/b.gguf", scale=0.5)),
    ),
    ("mmproj", "/eyes/mmproj-b.gguf", "mmproj", "/eyes/mmproj-b.gguf"),
    ("rpc_servers", ["gpu1:50052"], "rpc_servers", ("gpu1:50052",)),
    ("speculation", "off", "speculation", "off"),
]
OF_LOADING_ALL_ALIKE: list[tuple[str, Any, str, Any]] = [
    ("max_queue", 5, "max_queue", 5),
    ("prefill_chunk", 32, "prefill_chunk", 32),
    ("prefix_cache_ram_mb", 64, "prefix_cache_ram_mb", 64),
    ("prefix_cache_disk_mb", 200, "prefix_cache_disk_mb", 200),
    ("fence", "off", "fence", "off"),
]
OF_SAMPLING: list[tuple[str, Any]] = [
    ("stop_loops", False),
    ("temperature", 0.3),
    ("top_k", 7),
    ("top_p", 0.5),
    ("min_p", 0.2),
    ("typical_p", 0.9),
    ("xtc_probability", 0.4),
    ("xtc_threshold", 0.2),
    ("repeat_penalty", 1.3),
    ("frequency_penalty", 0.5),
    ("presence_penalty", -0.5),
    ("penalty_last_n", 128),
    ("dry_multiplier", 0.8),
    ("dry_base", 2.0),
    ("dry_allowed_length", 4),
    ("dry_last_n", 512),
    ("dry_breakers", ["\n"]),
    ("seed", 42),
    ("max_tokens", 99),
]
# What only a request has, and what the daemon itself fills in.
# How long a loop may be is the worker's, by the size of its model.
OF_REQUESTS = {
    *("stop", "logit_bias", "logprobs", "top_logprobs", "loop_tokens", "call_from"),
    *("preset", "by_operator", "template_kwargs", "reasoning_tokens"),
}
OF_THE_DAEMON = {
    "path",
    "alias",
    "template_file",
    "prefix_cache_folder",
    "prefix_cache_conversations",
}


def found(home: Path, text: str, name: str = MODEL, **environ: str) -> LocalModel:
    (home / "models").mkdir(exist_ok=True)
    (home / "models" / f"{MODEL}.gguf").touch()
    (home / "config.toml").write_text(text)
    loaded = load(environ={"CLAWD_HOME": str(home), "HOME": str(home), **environ})
    return LocalModels(loaded).find(name)


def line(key: str, value: object) -> str:
    return f"{key} = {toml_value(value)}\n"


@each_row(("key", "value", "name", "expected"), OF_LOADING + OF_LOADING_ALL_ALIKE)
def test_a_key_of_loading_reaches_the_engine(
    key: str, value: object, name: str, expected: object, tmp_path: Path
) -> None:
    assert getattr(found(tmp_path, "").config, name) != expected
    config = found(tmp_path, "[engine]\n" + line(key, value)).config
    assert getattr(config, name) == expected


@each_row(("key", "value", "name", "expected"), OF_LOADING)
def test_a_models_profile_may_change_how_it_is_loaded(
    key: str, value: object, name: str, expected: object, tmp_path: Path
) -> None:
    built_in = EngineSection.model_fields[key].default
    text = f"[engine]\n{line(key, built_in)}[model.my-model]\n{line(key, value)}"
    assert getattr(found(tmp_path, text).config, name) == expected
    assert getattr(found(tmp_path, text, EMBEDDED).config, name) != expected


@each_row("where", ["[engine]", "[engine]\ntemperature = 1.0\n[model.my-model]"])
@each_row(("key", "value"), OF_SAMPLING)
def test_a_key_of_sampling_reaches_the_engine(
    key: str, value: object, where: str, tmp_path: Path
) -> None:
    expected = tuple(value) if isinstance(value, list) else value
    assert getattr(found(tmp_path, "").sampling, key) != expected
    sampling = found(tmp_path, f"{where}\n{line(key, value)}").sampling
    assert getattr(sampling, key) == expected


def test_r5_variables_of_the_chat_template_are_a_models_own_or_everybodys(tmp_path: Path) -> None:
    everybodys = "[engine]\ntemplate_kwargs = { enable_thinking = true, depth = 2 }\n"
    own = f'[model."{MODEL}"]\ntemplate_kwargs = {{ enable_thinking = false }}\n'
    assert found(tmp_path, "").template_kwargs == {}
    assert found(tmp_path, everybodys).template_kwargs == {"enable_thinking": True, "depth": 2}
    assert found(tmp_path, everybodys + own).template_kwargs == {"enable_thinking": False}


def test_these_tables_leave_no_setting_out() -> None:
    loading = {name for _, _, name, _ in OF_LOADING + OF_LOADING_ALL_ALIKE}
    # The seed is the requests', as the default of all samplings.
    assert loading | OF_THE_DAEMON | {"seed"} == set(ModelConfig.__struct_fields__)
    sampling = {key for key, _ in OF_SAMPLING}
    assert sampling | OF_REQUESTS == set(Sampling.__struct_fields__)
    of_a_model = {key for key, *_ in OF_LOADING} | sampling
    assert of_a_model | {"preset", "template_kwargs"} == set(ModelProfile.model_fields)
    assert set(ModelProfile.model_fields) <= set(EngineSection.model_fields)


def test_without_a_config_the_engine_gets_its_own_built_in_values(tmp_path: Path) -> None:
    model = found(tmp_path, "")
    # Also of what is switched off as it stands.
    switched_on: dict[str, Any] = {"dry_multiplier": 1.0, "xtc_probability": 0.5}
    for on in ({}, switched_on, {"repeat_penalty": 1.1}):
        told = msgspec.structs.replace(model.sampling, **on)
        assert plan_stages(told, model_seed=9) == plan_stages(Sampling(**on), model_seed=9)
    path = str(tmp_path / "models" / f"{MODEL}.gguf")
    folder = str(tmp_path / "cache" / "prefix")
    assert model.config == ModelConfig(
        path=path,
        alias=MODEL,
        prefix_cache_disk_mb=2048,
        prefix_cache_folder=folder,
        prefix_cache_conversations=False,
    )


def test_the_projector_is_the_one_beside_the_model_unless_another_or_none_is_named(
    tmp_path: Path,
) -> None:
    assert found(tmp_path, "").config.mmproj == ""
    beside = tmp_path / "models" / f"mmproj-{MODEL}.gguf"
    beside.touch()
    assert found(tmp_path, "").config.mmproj == str(beside)
    by_path = str(tmp_path / "models" / f"{MODEL}.gguf")
    assert found(tmp_path, "", by_path).config.mmproj == str(beside)
    assert found(tmp_path, "", EMBEDDED).config.mmproj == ""
    named = f'[model."{MODEL}"]\nmmproj = '
    assert found(tmp_path, named + '"off"').config.mmproj == ""
    assert found(tmp_path, named + '"eyes.gguf"').config.mmproj == str(tmp_path / "eyes.gguf")


def test_conversations_are_kept_on_disk_only_where_the_config_says_how_many(
    tmp_path: Path,
) -> None:
    config = found(tmp_path, "", EMBEDDED).config
    assert config.prefix_cache_folder == str(tmp_path / "cache" / "prefix")
    assert not config.prefix_cache_conversations
    asked = found(tmp_path, "[engine]\nprefix_cache_disk_mb = 2048\n", EMBEDDED).config
    assert (asked.prefix_cache_disk_mb, asked.prefix_cache_conversations) == (2048, True)


class TestPresets:
    def test_the_config_knows_the_presets_that_there_are(self, tmp_path: Path) -> None:
        for name, preset in PRESETS.items():
            sampling = found(tmp_path, "[engine]\n" + line("preset", name)).sampling
            assert sampling.temperature == preset.temperature
            assert sampling.xtc_probability == preset.xtc_probability

    def test_keys_beside_a_preset_win_over_it(self, tmp_path: Path) -> None:
        sampling = found(tmp_path, '[engine]\npreset = "wild"\ntemperature = 0.8').sampling
        assert (sampling.temperature, sampling.top_k, sampling.xtc_probability) == (0.8, 0, 0.5)

    def test_a_models_preset_wins_over_the_sections_keys_and_its_own_keys_over_that(
        self, tmp_path: Path
    ) -> None:
        text = "[engine]\ntemperature = 0.1\ntop_k = 3\nseed = 5\n[model.my]\npreset = 'creative'\n"
        sampling = found(tmp_path, text).sampling
        assert (sampling.temperature, sampling.top_k, sampling.seed) == (1.1, 100, 5)
        assert found(tmp_path, text + "top_k = 9").sampling.top_k == 9

    def test_a_key_of_the_model_wins_over_the_sections_preset(self, tmp_path: Path) -> None:
        text = "[engine]\npreset = 'creative'\n[model.my]\ntemperature = 0.2"
        sampling = found(tmp_path, text).sampling
        assert (sampling.temperature, sampling.top_k) == (0.2, 100)

    def test_one_preset_leaves_nothing_of_another_behind(self, tmp_path: Path) -> None:
        text = "[engine]\npreset = 'wild'\n[model.my]\npreset = 'balanced'"
        assert found(tmp_path, text).sampling == found(tmp_path, "").sampling

    def test_an_empty_preset_takes_another_one_away_and_leaves_the_keys(
        self, tmp_path: Path
    ) -> None:
        text = "[engine]\npreset = 'wild'\ntop_p = 0.7\n[model.my]\npreset = ''"
        sampling = found(tmp_path, text).sampling
        assert sampling == msgspec.structs.replace(found(tmp_path, "").sampling, top_p=0.7)

    def test_the_environment_wins_over_all_of_the_file(self, tmp_path: Path) -> None:
        text = "[engine]\ntop_k = 3\n[model.my]\ntemperature = 0.2\npreset = 'wild'"
        sampling = found(tmp_path, text, CLAWD_ENGINE__PRESET="precise").sampling
        assert (sampling.temperature, sampling.top_k, sampling.xtc_probability) == (0.3, 40, 0.0)
        sampling = found(tmp_path, text, CLAWD_ENGINE__TEMPERATURE="0.6").sampling
        assert (sampling.temperature, sampling.xtc_probability) == (0.6, 0.5)
