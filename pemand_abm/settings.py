"""Settings files: YAML read into a model that knows its keys; errors say which key to mend."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from pemand_abm.errors import SettingsError, listed

MUST = {
    ("model_type", "model_attributes_type", "dict_type"): "`key: value` lines",
    ("tuple_type", "list_type"): "a list",
    ("int_type", "int_parsing", "int_from_float"): "a whole number",
    ("float_type", "float_parsing"): "a number",
    ("bool_type", "bool_parsing"): "true or false",
    ("string_type",): "a text",
    ("path_type",): "a path",
}
"""What a value must be, by pydantic's names of the errors that say so."""

Settings = typing.TypeVar("Settings", bound=BaseModel)


class Strict(BaseModel):
    """A part of a settings file in which a key that is not known is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _Loader(yaml.SafeLoader):
    """YAML in which a key that stands twice is an error, where YAML takes the last silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [k.value for k, _ in node.value if isinstance(k, yaml.ScalarNode)]
        for key in dict.fromkeys(k for k in keys if k != "<<" and keys.count(k) > 1):
            raise yaml.constructor.ConstructorError(
                None, None, f"key {key!r} stands twice; leave one", node.start_mark
            )
        return super().construct_mapping(node, deep)


def _as_written(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> str:
    return str(node.value)


# A day that the calendar does not have would be a traceback; what takes a day checks it.
_Loader.add_constructor("tag:yaml.org,2002:timestamp", _as_written)


def read_settings(path: Path, model: type[Settings]) -> Settings:
    """Read a YAML file into a pydantic model.

    Raises
    ------
    SettingsError
        Every fault at once, each with its key; a misspelt key with its likely form.
    """
    return checked(read_mapping(path), path, model)


def read_mapping(path: Path) -> dict[str, Any]:
    """Return what a settings file holds, unchecked but for its form."""
    try:
        held = yaml.load(path.read_text(encoding="utf-8-sig"), Loader=_Loader)
    except OSError as fault:
        raise SettingsError(f"{path}: cannot be read ({fault.strerror or fault})") from fault
    except (yaml.YAMLError, UnicodeDecodeError) as fault:
        raise SettingsError(f"{path}: is not YAML in UTF-8: {fault}") from fault
    if held is None:
        raise SettingsError(f"{path}: is empty; write `key: value` lines")
    if not isinstance(held, dict):
        raise SettingsError(f"{path}: must hold `key: value` lines, holds {type(held).__name__}")
    return held


def checked(held: dict[str, Any], path: Path, model: type[Settings]) -> Settings:
    """Return the settings that *path* holds; SettingsError as `read_settings`."""
    try:
        return model.model_validate(held)
    except ValidationError as fault:
        raise SettingsError(
            listed([_explained(e, model) for e in fault.errors()], str(path))
        ) from fault


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?` where a known name is near, in case or in letters."""
    lower = {k.lower(): k for k in known}
    near = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.6)
    return f"; did you mean {lower[near[0]]!r}?" if near else ""


def _explained(error: Any, model: type[BaseModel]) -> str:
    """Return one pydantic error as a sentence that names the key."""
    # In a list of names or numbers pydantic tells what each kind lacks, and names the kind last.
    loc = tuple(part for part in error["loc"] if part not in ("int", "str"))
    *parents, key = loc or ("",)
    where = ".".join(map(str, loc))
    if error["type"] == "extra_forbidden":
        known = _keys(model, parents)
        hint = suggestion(str(key), known) or f"; known are {', '.join(known)}"
        return f"key {where!r} is not known{hint}"
    if error["type"] == "missing":
        return f"key {where!r} is lacking"
    if error["input"] is None:
        return f"{where}: {_of_nothing(model, loc)}"
    said = error["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    if must := next((words for kind, words in MUST.items() if error["type"] in kind), None):
        inner = _keys(model, loc)
        said = f"must be {must} ({', '.join(inner)})" if inner else f"must be {must}"
    return f"{where}: {said}, got {error['input']!r}" if where else said


def _of_nothing(model: type[BaseModel], loc: tuple[int | str, ...]) -> str:
    """Return what to write in the place of a key that has nothing after its colon."""
    *parents, key = loc
    known, above = _keys(model, loc), _model(model, parents)
    write = f"write what belongs in it ({', '.join(known)})" if known else "give it a value"
    field = above.model_fields.get(str(key)) if above else None
    needed = field is not None and field.is_required()
    return f"is empty; {write}" + ("" if needed else ", or leave it out")


def _keys(model: type[BaseModel], parents: Iterable[int | str]) -> list[str]:
    """Return the keys that a model knows below *parents*."""
    found = _model(model, parents)
    return list(found.model_fields) if found else []


def _model(model: type[BaseModel], parents: Iterable[int | str]) -> type[BaseModel] | None:
    """Return the part of a model that stands below *parents*."""
    for parent in parents:
        field = model.model_fields.get(str(parent))
        if field is None:  # a place in a list
            continue
        found = _models(field.annotation)
        if not found:
            return None
        model = found[0]
    return model


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Return the pydantic models within a type such as `list[Lever] | None`."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [m for inner in typing.get_args(annotation) for m in _models(inner)]
