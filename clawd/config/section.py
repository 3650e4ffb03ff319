"""The base of all sections of the configuration: strict, immutable, numbers of a size that fits."""

from pydantic import BaseModel, ConfigDict, field_validator
from pydantic_core import PydanticCustomError

MAX_NUMBER = 2**32 - 1


class Section(BaseModel):
    """The base of all sections: immutable, unknown keys refused, no silent conversion."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _check_size(cls, value: object) -> object:
        # Numbers go on to the worker's frames and to llama.cpp, which take so many bits.
        if isinstance(value, int) and value > MAX_NUMBER:
            raise PydanticCustomError("too_big", f"a value of at most {MAX_NUMBER}")
        return value
