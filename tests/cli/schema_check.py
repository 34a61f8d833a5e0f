"""What a document lacks of a JSON Schema: as much of draft-07 as lockstep's own schemas use."""
import re

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def is_of(value, name):
    if name in TYPES:
        return isinstance(value, TYPES[name])
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return name == "number" or isinstance(value, int) or value.is_integer()


def problems(document, schema):
    return list(_problems(document, schema, schema, ""))


def _problems(value, schema, root, place):
    if "$ref" in schema:
        target = root
        for word in schema["$ref"].lstrip("#/").split("/"):
            target = target[word]
        yield from _problems(value, target, root, place)
    yield from _of_value(value, schema, place)
    for word in ("anyOf", "oneOf"):
        if word in schema and all(list(_problems(value, one, root, place)) for one in schema[word]):
            yield f"{place}: fits no branch of {word}"
    if isinstance(value, dict):
        yield from _of_object(value, schema, root, place)
    elif isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from _problems(item, schema["items"], root, f"{place}/{index}")


def _of_value(value, schema, place):
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(is_of(value, name) for name in types):
        yield f"{place}: {value!r} is no {' or '.join(types)}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place}: {value!r} is none of {schema['enum']}"
    if "const" in schema and value != schema["const"]:
        yield f"{place}: {value!r} is not {schema['const']!r}"
    if "pattern" in schema and isinstance(value, str) and not re.search(schema["pattern"], value):
        yield f"{place}: {value!r} does not match {schema['pattern']}"
    if "minimum" in schema and is_of(value, "number") and value < schema["minimum"]:
        yield f"{place}: {value} is below {schema['minimum']}"


def _of_object(value, schema, root, place):
    known = schema.get("properties", {})
    for name in schema.get("required", []):
        if name not in value:
            yield f"{place}: lacks {name}"
    for name, member in value.items():
        rule = known.get(name, schema.get("additionalProperties", True))
        if rule is False:
            yield f"{place}: {name} is not known"
        elif isinstance(rule, dict):
            yield from _problems(member, rule, root, f"{place}/{name}")
