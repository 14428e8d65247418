"""Checks answers of the server against docs/reference/openapi.json.

    document = Document.read("docs/reference/openapi.json")
    problems = document.check_answer("GET", "/api/v1/nodes/gpu-1", 200, "application/json", body)

Supports the part of JSON Schema that the document uses, and refuses a document that uses more: a keyword that is
ignored would be a check that never fails. Members that a schema does not list are problems, although clients ignore
them: everything that the server sends must be documented.
"""
import json
import re
import sys

# Keywords without a meaning for values.
ANNOTATIONS = {"description", "example"}
KEYWORDS = {"type", "properties", "required", "items", "enum", "$ref", "additionalProperties", "oneOf", "minimum", "maximum"} | ANNOTATIONS
TYPES = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "integer": lambda value: not isinstance(value, bool)
    and (isinstance(value, int) or (isinstance(value, float) and value.is_integer())),
}


def shown(value):
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."


class Document:
    def __init__(self, document):
        self.document = document
        self.seen = {}  # by schema: the members that values had

    @staticmethod
    def read(path):
        with open(path, encoding="utf-8") as file:
            return Document(json.load(file))

    def resolve(self, node):
        """The node that a $ref leads to, or the node itself without a $ref."""
        while isinstance(node, dict) and "$ref" in node:
            target = self.document
            if not node["$ref"].startswith("#/"):
                raise ValueError(f"{node['$ref']}: only references within the document are known")
            for part in node["$ref"][2:].split("/"):
                if part not in target:
                    raise ValueError(f"{node['$ref']} leads nowhere")
                target = target[part]
            node = target
        return node

    def check(self, value, schema, at="$"):
        """The problems of a value, one line each."""
        unknown = set(schema) - KEYWORDS
        if unknown:
            raise ValueError(f"the keyword {sorted(unknown)[0]} of a schema is not known")
        if "$ref" in schema:
            return self.check(value, self.resolve(schema), at)
        if "oneOf" in schema:
            fits = [option for option in schema["oneOf"] if not self.check(value, option, at)]
            if len(fits) != 1:
                return [f"{at}: {shown(value)} fits {len(fits)} of {len(schema['oneOf'])} alternatives, not one"]
        types = schema.get("type", [])
        types = [types] if isinstance(types, str) else types
        if types and not any(TYPES[kind](value) for kind in types):
            return [f"{at}: {shown(value)} is not of type {' or '.join(types)}"]
        if "enum" in schema and not any(value == allowed and type(value) is type(allowed) for allowed in schema["enum"]):
            return [f"{at}: {shown(value)} is none of {', '.join(map(str, schema['enum']))}"]
        if "minimum" in schema and value < schema["minimum"] or "maximum" in schema and value > schema["maximum"]:
            return [f"{at}: {shown(value)} is out of bounds"]
        problems = []
        if isinstance(value, dict):
            problems += self.check_members(value, schema, at)
        if isinstance(value, list) and "items" in schema:
            for index, entry in enumerate(value):
                problems += self.check(entry, schema["items"], f"{at}[{index}]")
        return problems

    def check_members(self, value, schema, at):
        problems = [f"{at}: has no \"{name}\"" for name in schema.get("required", []) if name not in value]
        properties = schema.get("properties", {})
        self.seen.setdefault(id(schema), set()).update(value)
        # An object without any list of members may have all.
        others = schema.get("additionalProperties", False if "properties" in schema else True)
        for name, member in value.items():
            where = f"{at}.{name}"
            if name in properties:
                problems += self.check(member, properties[name], where)
            elif others is False:
                problems.append(f"{where}: is not documented")
            elif others is not True:
                problems += self.check(member, others, where)
        return problems

    def never_sent(self):
        """Members of used schemas that no answer had: "OneReplica.why.funnel"."""
        found = set()

        def visit(schema, at):
            seen = self.seen.get(id(schema))
            for name, member in schema.get("properties", {}).items():
                if seen is not None and name not in seen:
                    found.add(f"{at}.{name}")
                visit(member, f"{at}.{name}")
            for key in ("items", "additionalProperties"):
                if isinstance(schema.get(key), dict):
                    visit(schema[key], at)
        for name, schema in self.document["components"]["schemas"].items():
            visit(schema, name)
        return found

    def operation(self, method, path):
        """The operation for a request, or None. A template of several words yields to one without."""
        path = path.split("?")[0]
        best = None
        for template, item in self.document["paths"].items():
            pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template))
            if re.fullmatch(pattern, path) and method.lower() in item:
                if best is None or template.count("{") < best[0].count("{"):
                    best = (template, item[method.lower()])
        return best[1] if best else None

    def check_content(self, described, kind, body, what):
        kind = kind.split(";")[0].strip().lower()
        content = self.resolve(described).get("content", {})
        if kind not in content:
            return [f"{what}: the type {kind} is not documented; {', '.join(content) or 'nothing'} is"]
        if kind != "application/json":
            return []
        try:
            value = json.loads(body)
        except ValueError as error:
            return [f"{what}: is not JSON ({error})"]
        return self.check(value, content[kind]["schema"])

    def check_answer(self, method, path, status, kind, body):
        what = f"{method} {path} {status}"
        operation = self.operation(method, path)
        if operation is None:
            # An unknown address is answered like any error.
            return self.check_content({"$ref": "#/components/responses/Error"}, kind, body, what) if status >= 400 else [
                f"{what}: is not documented"]
        responses = operation["responses"]
        described = responses.get(str(status)) or (responses.get("default") if status >= 400 else None)
        if described is None:
            return [f"{what}: the status is not documented"]
        return self.check_content(described, kind, body, what)

    def check_request(self, method, path, kind, body):
        what = f"{method} {path}"
        operation = self.operation(method, path)
        if operation is None:
            return [f"{what}: is not documented"]
        if "requestBody" not in operation:
            return [f"{what}: a body is not documented"] if body else []
        return self.check_content(operation["requestBody"], kind, body, what)

    def check_itself(self):
        """References, keywords and examples of the document. Raises ValueError for parts that cannot be checked."""
        problems, used, ids = [], set(), []
        schemas = self.document["components"]["schemas"]

        def visit_schema(schema, at):
            unknown = set(schema) - KEYWORDS
            if unknown:
                problems.append(f"{at}: the keyword {sorted(unknown)[0]} is not known")
            if "$ref" in schema:
                used.add(schema["$ref"].split("/")[-1])
                try:
                    self.resolve(schema)
                except ValueError as error:
                    problems.append(f"{at}: {error}")
            types = schema.get("type", [])
            for kind in [types] if isinstance(types, str) else types:
                if kind not in TYPES:
                    problems.append(f"{at}: there is no type {kind}")
            for name in schema.get("required", []):
                if name not in schema.get("properties", {}):
                    problems.append(f"{at}: {name} is required and not described")
            for name, member in schema.get("properties", {}).items():
                visit_schema(member, f"{at}.{name}")
            for key in ("items", "additionalProperties"):
                if isinstance(schema.get(key), dict):
                    visit_schema(schema[key], f"{at}.{key}")
            for option in schema.get("oneOf", []):
                visit_schema(option, at)

        def visit_content(node, at):
            for kind, content in self.resolve(node).get("content", {}).items():
                visit_schema(content["schema"], f"{at} {kind}")
                if "example" in content and not problems:
                    problems.extend(f"{at}: the example: {problem}" for problem in self.check(content["example"], content["schema"]))

        for name, schema in schemas.items():
            visit_schema(schema, name)
        for path, item in self.document["paths"].items():
            words = [parameter["name"] for parameter in item.get("parameters", [])]
            if sorted(words) != sorted(re.findall(r"\{(\w+)\}", path)):
                problems.append(f"{path}: its parameters are not those of the path")
            for method, operation in item.items():
                if method == "parameters":
                    continue
                ids.append(operation["operationId"])
                for described in [*operation["responses"].values(), *filter(None, [operation.get("requestBody")])]:
                    visit_content(described, f"{method.upper()} {path}")
        problems += [f"the operationId {operation} is used twice" for operation in sorted(set(ids)) if ids.count(operation) > 1]
        problems += [f"the schema {name} is used by nothing" for name in sorted(set(schemas) - used)]
        return problems


if __name__ == "__main__":
    if len(sys.argv) not in (2, 5):
        sys.exit("usage: openapi_check.py DOCUMENT [METHOD PATH STATUS < ANSWER]")
    document = Document.read(sys.argv[1])
    if len(sys.argv) == 2:
        found = document.check_itself()
    else:
        found = document.check_answer(sys.argv[2], sys.argv[3], int(sys.argv[4]), "application/json", sys.stdin.read())
    print("\n".join(found) or "agrees")
    sys.exit(1 if found else 0)
