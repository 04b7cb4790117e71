"""Write tests/quarto_schema.json: what Quarto accepts in a website's `_quarto.yml`.

`python tools/quarto_schema.py CLONE TAG` reads the schemas of a tag in a clone of
https://github.com/quarto-dev/quarto-cli (MIT licence, Copyright Posit Software, PBC), which are
written in Quarto's own YAML dialect, and writes what a website needs of them as a JSON schema.
Descriptions are left out. Quarto lets unknown options of a format pass; the schema refuses them.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "src/resources/schema/"
SIMPLE = {
    "any": {},
    "boolean": {"type": "boolean"},
    "null": {"type": "null"},
    "number": {"type": "number"},
    "object": {"type": "object"},
    "path": {"type": "string"},
    "string": {"type": "string"},
}
LONGEST = 700  # characters of a translated option
Schema = dict[str, Any]


def _read(clone: str, tag: str, name: str) -> Any:
    command = ["git", "-C", clone, "show", f"{tag}:{FOLDER}{name}"]
    return yaml.safe_load(subprocess.run(command, capture_output=True, check=True).stdout)


def _names(clone: str, tag: str) -> list[str]:
    command = ["git", "-C", clone, "ls-tree", "--name-only", tag, FOLDER]
    listed = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    return [path.removeprefix(FOLDER) for path in listed.split()]


def _under(value: Any, key: str) -> Any:
    """Unwrap what may stand under a key of its own, beside a description."""
    return value[key] if isinstance(value, dict) and key in value else value


class Translator:
    """Translate Quarto's dialect and collect the definitions that are referred to."""

    def __init__(self, definitions: dict[str, Any]) -> None:
        self.definitions = definitions
        self.needed: dict[str, Schema] = {}

    def translate(self, schema: Any) -> Schema:
        """Translate one schema."""
        if schema is None:
            return SIMPLE["null"]
        if isinstance(schema, str):
            return SIMPLE[schema]
        for key, value in schema.items():
            method = getattr(self, f"_{key}", None)
            if method:
                return method(value)
            if key in SIMPLE and key != "object":
                return SIMPLE[key]
        raise ValueError(f"unknown schema: {schema}")

    def _schema(self, value: Any) -> Schema:
        return self.translate(value)

    def _enum(self, value: Any) -> Schema:
        return {"enum": _under(value, "values")}

    def _pattern(self, value: Any) -> Schema:
        return {"type": "string"}

    def _ref(self, name: str) -> Schema:
        if name not in self.needed:
            self.needed[name] = {}
            self.needed[name] = self.translate(self.definitions[name])
        return {"$ref": f"#/$defs/{name}"}

    def _resolveRef(self, name: str) -> Schema:
        return self.translate(self.definitions[name])

    def _anyOf(self, value: Any) -> Schema:
        return {"anyOf": [self.translate(each) for each in _under(value, "schemas")]}

    def _allOf(self, value: Any) -> Schema:
        return {"allOf": [self.translate(each) for each in _under(value, "schemas")]}

    def _arrayOf(self, value: Any) -> Schema:
        return {"type": "array", "items": self.translate(_under(value, "schema"))}

    def _maybeArrayOf(self, value: Any) -> Schema:
        one = self.translate(_under(value, "schema"))
        return {"anyOf": [one, {"type": "array", "items": one}]}

    def _record(self, value: Any) -> Schema:
        return self._object({"properties": _under(value, "properties"), "closed": True})

    def _object(self, value: Any) -> Schema:
        made: Schema = {"type": "object"}
        parents = value.get("super", [])
        for parent in parents if isinstance(parents, list) else [parents]:
            inherited = self.translate(parent)
            made["properties"] = made.get("properties", {}) | inherited.get("properties", {})
        properties = value.get("properties", {})
        if properties:
            own = {str(name): self.translate(each) for name, each in properties.items()}
            made["properties"] = made.get("properties", {}) | own
        if value.get("closed"):
            made["additionalProperties"] = False
        if isinstance(value.get("required"), list):
            made["required"] = value["required"]
        return made


def _is_for_html(field: dict[str, Any]) -> bool:
    named = field.get("tags", {}).get("formats", [])
    kinds = [name for name in named if not name.startswith("!")]
    return not kinds or any(name.startswith(("$html", "html")) for name in kinds)


def _fields(clone: str, tag: str) -> tuple[list[Any], list[Any]]:
    """List the options of documents and those of their execution."""
    documents, executions = [], []
    for name in _names(clone, tag):
        if not name.startswith(("document-", "cell-")) or "reveal" in name:
            continue
        for field in _read(clone, tag, name):
            contexts = field.get("tags", {}).get("contexts", [])
            if name == "document-execute.yml" or "document-execute" in contexts:
                executions.append(field)
                if not field.get("tags", {}).get("execute-only"):
                    documents.append(field)
            elif _is_for_html(field) and (name.startswith("document-") or contexts):
                documents.append(field)
    return documents, executions


def _options(fields: list[Any], translator: Translator) -> Schema:
    """Translate fields; the schemas of the longest, which are seldom used, let all values pass."""
    found: Schema = {}
    for field in fields:
        trial = Translator(translator.definitions)
        made = trial.translate(field["schema"])
        is_short = len(json.dumps([made, trial.needed])) < LONGEST
        found[field["name"]] = translator.translate(field["schema"]) if is_short else {}
        if isinstance(field.get("alias"), str):
            found[field["alias"]] = found[field["name"]]
    return {"type": "object", "properties": dict(sorted(found.items()))}


def website_schema(clone: str, tag: str) -> Schema:
    """Put together the schema of a website project."""
    definitions = {each["id"]: each for each in _read(clone, tag, "definitions.yml")}
    translator = Translator(definitions)
    documents, executions = (_options(each, translator) for each in _fields(clone, tag))
    closed = {"unevaluatedProperties": False}
    project = {each["name"]: each["schema"] for each in _read(clone, tag, "project.yml")}
    a_format = {"anyOf": [{"const": "default"}, {"$ref": "#/$defs/options", **closed}]}
    tops = {name: translator.translate(project[name]) for name in ("project", "website")}
    tops["execute"] = {**executions, **closed}
    tops["format"] = {"type": "object", "additionalProperties": a_format}
    source = f"quarto-dev/quarto-cli {tag}, MIT licence, Copyright (c) Posit Software, PBC"
    return {
        "$comment": f"Made by tools/quarto_schema.py from {source}",
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$ref": "#/$defs/options",
        "properties": tops,
        **closed,
        "$defs": {"options": documents, **translator.needed},
    }


def main() -> None:
    """Write the schema."""
    clone, tag = sys.argv[1:]
    text = json.dumps(website_schema(clone, tag), indent=None, separators=(",", ":"))
    (ROOT / "tests" / "quarto_schema.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
