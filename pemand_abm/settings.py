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
    *parents, key = error["loc"] or ("",)
    where = ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        known = _keys(model, parents)
        hint = suggestion(str(key), known) or f"; known are {', '.join(known)}"
        return f"key {where!r} is not known{hint}"
    if error["type"] == "missing":
        return f"key {where!r} is lacking"
    said = error["msg"].removeprefix("Value error, ")
    return f"{where}: {said}, got {error['input']!r}" if where else said


def _keys(model: type[BaseModel], parents: list[int | str]) -> list[str]:
    """Return the keys that a model knows below *parents*."""
    for parent in parents:
        field = model.model_fields.get(str(parent))
        if field is None:  # a place in a list
            continue
        found = _models(field.annotation)
        if not found:
            return []
        model = found[0]
    return list(model.model_fields)


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Return the pydantic models within a type such as `list[Lever] | None`."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [m for inner in typing.get_args(annotation) for m in _models(inner)]
