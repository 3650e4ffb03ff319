"""Which chat template belongs to which of these families; the generic one, for all others, last."""

from clawd.providers.toolcalls import (
    apertus,
    command_r,
    functionary,
    gemma,
    generic_json,
    granite,
    harmony,
    lfm2,
    minicpm,
    nemotron,
    phi4,
)
from clawd.providers.toolcalls.family import Family, always

# Text that shows a call which could not be parsed, whatever the family.
CALL_MARKERS_B = (
    *granite.OPENS,
    *phi4.OPENS[:1],
    apertus.OPEN,
    command_r.START_ACTION,
    functionary.OPEN,
    gemma.OPEN,
    gemma.START_CALL,
    gemma.TOOL_CODE,
    generic_json.OPENS[1],
    lfm2.OPEN,
    minicpm.OPEN,
    *nemotron.OPENS,
    " to=functions.",
)

_HERMES = "<tool_call>"


def _is_harmony(template: str) -> bool:
    return harmony.CHANNEL in template and "<|message|>" in template and "<|start|>" in template


def _is_gemma4(template: str) -> bool:
    return "<|tool_call>" in template and "<tool_call|>" in template


def _is_function_gemma(template: str) -> bool:
    return "<start_function_call>" in template


def _is_gemma(template: str) -> bool:
    return "<start_of_turn>" in template


def _is_command_marked(template: str) -> bool:
    return command_r.START_ACTION in template


def _is_command_fenced(template: str) -> bool:
    return "<|CHATBOT_TOKEN|>" in template


def _is_granite(template: str) -> bool:
    return "<|start_of_role|>" in template


def _is_phi4(template: str) -> bool:
    is_phi = "<|assistant|>" in template and "<|tool|>" in template
    return "<|/tool_call|>" in template or "functools" in template or is_phi


def _is_lfm2(template: str) -> bool:
    lists = ("<|tool_list_start|>", "List of tools: [")
    return lfm2.OPEN in template or any(start in template for start in lists)


def _is_functionary32(template: str) -> bool:
    return ">>>all" in template and "recipient" in template


def _is_functionary31(template: str) -> bool:
    is_call = functionary.OPEN in template and "</function>" in template
    return is_call and "<parameter=" not in template


def _is_nemotron(template: str) -> bool:
    return nemotron.OPENS[0] in template or f"{nemotron.OPENS[1]}[" in template


def _is_apertus(template: str) -> bool:
    return apertus.OPEN in template


def _is_minicpm(template: str) -> bool:
    return "<function name=" in template and "<param name=" in template


def _is_other(template: str) -> bool:
    return bool(template) and _HERMES not in template


FAMILIES_B: tuple[Family, ...] = (
    Family("harmony", _is_harmony, harmony.make, always(*harmony.FRAMES), harmony.THOUGHTS),
    Family("gemma 4", _is_gemma4, gemma.make_native, always(gemma.NATIVE_FRAME), gemma.THOUGHTS),
    Family("functiongemma", _is_function_gemma, gemma.make_function, always(gemma.FUNCTION_FRAME)),
    Family("gemma", _is_gemma, gemma.make_asked, always(*gemma.ASKED_FRAMES)),
    Family(
        "command",
        _is_command_marked,
        command_r.make_marked,
        always(command_r.MARKED_FRAME),
        command_r.THOUGHTS,
    ),
    Family("command r+", _is_command_fenced, command_r.make_fenced, always(command_r.FENCED_FRAME)),
    Family("granite", _is_granite, granite.make, granite.frames),
    Family("lfm2", _is_lfm2, lfm2.make, always(*lfm2.FRAMES)),
    Family("nemotron", _is_nemotron, nemotron.make, nemotron.frames),
    Family(
        "apertus",
        _is_apertus,
        apertus.make,
        always(apertus.FRAME),
        apertus.THOUGHTS,
        hides_calls=False,
    ),
    Family("minicpm", _is_minicpm, minicpm.make, always(minicpm.FRAME)),
    Family(
        "functionary 3.2",
        _is_functionary32,
        functionary.make_v32,
        always(*functionary.ADDRESSED_FRAMES),
    ),
    Family("phi-4", _is_phi4, phi4.make, phi4.frames),
    Family(
        "functionary 3.1",
        _is_functionary31,
        functionary.make_v31,
        always(functionary.TAGGED_FRAME),
    ),
    Family("generic", _is_other, generic_json.make, always(*generic_json.FRAMES)),
)
