#!/usr/bin/env python3
"""The checker of tests/openapi_check.py, and docs/reference/openapi.json against itself and against the routes of the server.

    openapi_check_test.py SOURCE_FOLDER
"""
import copy
import json
import pathlib
import re
import sys
import unittest

from openapi_check import Document

SOURCE = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__ + "/../..").resolve()
DOCUMENT = SOURCE / "docs/reference/openapi.json"


def check(value, schema, **others):
    return Document({"components": {"schemas": others}}).check(value, schema)


class Values(unittest.TestCase):
    def test_types(self):
        for kind, good, bad in (
            ("integer", [0, -1, 2**64, 2.0], [0.5, True, "1", None]),
            ("number", [0, 0.5, -1e300], [True, "1", None, []]),
            ("string", ["", "a"], [1, None, []]),
            ("boolean", [True, False], [0, 1, "true", None]),
            ("array", [[], [1]], [{}, "", None]),
            ("object", [{}, {"a": 1}], [[], None]),
            ("null", [None], [0, "", False]),
        ):
            for value in good:
                self.assertEqual(check(value, {"type": kind}), [])
            for value in bad:
                self.assertEqual(len(check(value, {"type": kind})), 1, (kind, value))
        self.assertEqual(check(None, {"type": ["number", "null"]}), [])
        self.assertEqual(check("a", {"type": ["number", "null"]}), ['$: "a" is not of type number or null'])

    def test_a_problem_names_its_place(self):
        schema = {"type": "object", "required": ["nodes"], "properties": {"nodes": {"type": "array", "items": {
            "type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "port": {"type": "integer"}}}}}}
        self.assertEqual(check({"nodes": [{"name": "a", "port": 1}]}, schema), [])
        self.assertEqual(check({}, schema), ['$: has no "nodes"'])
        self.assertEqual(check({"nodes": [{"name": "a"}, {"port": "x", "more": 1}]}, schema),
                         ['$.nodes[1]: has no "name"', '$.nodes[1].port: "x" is not of type integer',
                          "$.nodes[1].more: is not documented"])

    def test_what_no_answer_had_is_known(self):
        document = Document({"components": {"schemas": {
            "One": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "object", "properties": {"c": {"type": "string"}}}}},
            "Other": {"type": "object", "properties": {"d": {"type": "string"}}}}}})
        schema = {"$ref": "#/components/schemas/One"}
        self.assertEqual(document.never_sent(), set(), "no answer had any of these schemas")
        document.check({}, schema)
        self.assertEqual(document.never_sent(), {"One.a", "One.b"})
        document.check({"b": {}}, schema)
        self.assertEqual(document.never_sent(), {"One.a", "One.b.c"})

    def test_members_beyond_the_list(self):
        self.assertEqual(check({"a": 1}, {"type": "object"}), [])
        self.assertEqual(len(check({"a": 1}, {"type": "object", "properties": {}})), 1)
        self.assertEqual(check({"a": "b"}, {"type": "object", "additionalProperties": {"type": "string"}}), [])
        self.assertEqual(check({"a": 1}, {"type": "object", "additionalProperties": {"type": "string"}}),
                         ["$.a: 1 is not of type string"])
        self.assertEqual(check({"a": 1}, {"type": "object", "properties": {}, "additionalProperties": True}), [])
        self.assertEqual(len(check({"a": 1}, {"type": "object", "additionalProperties": False})), 1)

    def test_words_alternatives_and_references(self):
        self.assertEqual([check(number, {"type": "integer", "minimum": 1, "maximum": 3}) for number in (1, 3)], [[], []])
        self.assertEqual([len(check(number, {"type": "integer", "minimum": 1, "maximum": 3})) for number in (0, 4)], [1, 1])
        self.assertEqual(check("a", {"enum": ["a", "b"]}), [])
        self.assertEqual(check("c", {"enum": ["a", "b"]}), ['$: "c" is none of a, b'])
        self.assertEqual(len(check(True, {"enum": [1]})), 1, "true equals 1 in Python, not in JSON")
        either = {"oneOf": [{"type": "string"}, {"type": "integer"}]}
        self.assertEqual(check(1, either), [])
        self.assertEqual(len(check(None, either)), 1)
        self.assertEqual(len(check(1, {"oneOf": [{"type": "number"}, {"type": "integer"}]})), 1, "1 matches both schemas")
        name = {"$ref": "#/components/schemas/Name"}
        self.assertEqual(check("a", name, Name={"type": "string"}), [])
        self.assertEqual(len(check(1, name, Name={"type": "string"})), 1)
        with self.assertRaisesRegex(ValueError, "leads nowhere"):
            check("a", name)

    def test_a_keyword_that_is_not_known_is_not_ignored(self):
        with self.assertRaisesRegex(ValueError, "minLength"):
            check("a", {"type": "string", "minLength": 2})


class Answers(unittest.TestCase):
    def setUp(self):
        self.document = Document.read(DOCUMENT)

    def example(self, path):
        return self.document.document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["example"]

    def problems(self, method, path, status, value, kind="application/json"):
        return self.document.check_answer(method, path, status, kind, json.dumps(value))

    def test_an_answer_is_found_by_its_path(self):
        node = self.example("/api/v1/nodes/{NAME}")
        self.assertEqual(self.problems("GET", "/api/v1/nodes/gpu-1?x=1", 200, node, "application/json; charset=utf-8"), [])
        self.assertEqual(self.problems("GET", "/api/v1/nodes", 200, {"schema": 1, "revision": 1, "nodes": [node["node"]]}), [])
        self.assertNotEqual(self.problems("GET", "/api/v1/nodes", 200, node), [])
        self.assertNotEqual(self.problems("GET", "/api/v1/nothing", 200, node), [])
        self.assertNotEqual(self.problems("GET", "/api/v1/nodes/gpu-1", 204, node), [])
        self.assertNotEqual(self.problems("GET", "/api/v1/nodes/gpu-1", 200, node, "text/plain"), [])
        self.assertEqual(self.document.check_answer("GET", "/metrics", 200, "text/plain; version=0.0.4", "x 1\n"), [])

    def test_errors_have_one_form(self):
        error = {"schema": 1, "error": {"code": "not_found", "message": "no"}}
        self.assertEqual(self.problems("GET", "/api/v1/nodes/x", 404, error), [])
        self.assertEqual(self.problems("GET", "/no/such/address", 404, error), [])
        self.assertNotEqual(self.problems("GET", "/api/v1/nodes/x", 404, {"error": error["error"]}), [])
        self.assertNotEqual(self.problems("GET", "/api/v1/nodes/x", 404, {"schema": 1, "error": {"code": "odd", "message": ""}}), [])

    def test_every_change_of_an_example_is_seen(self):
        """A member renamed, left out or of another type: the checker can fail at every place of every example."""
        for path in ("/api/v1/status", "/api/v1/nodes/{NAME}", "/api/v1/deployments/{NAME}", "/api/v1/replicas/{NAME}/{N}"):
            example = self.example(path)
            schema = self.document.document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
            self.assertEqual(self.document.check(example, schema), [])
            places = []

            def visit(value, place):
                if isinstance(value, dict):
                    places.extend(place + [key] for key in value)
                for key, member in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
                    visit(member, place + [key])

            visit(example, [])
            for place in places:
                if place[-2:-1] in (["labels"], ["secrets"]):
                    continue  # any name is valid
                renamed, retyped = copy.deepcopy(example), copy.deepcopy(example)
                for changed in (renamed, retyped):
                    target = changed
                    for key in place[:-1]:
                        target = target[key]
                    if changed is renamed:
                        target["not_a_member"] = target.pop(place[-1])
                    else:
                        target[place[-1]] = None
                    self.assertNotEqual(self.document.check(changed, schema), [], place)

    def test_requests(self):
        check = lambda path, value, method="PUT": self.document.check_request(method, path, "application/json", json.dumps(value))
        self.assertEqual(check("/api/v1/nodes/a/intent", {"intent": "draining"}), [])
        self.assertNotEqual(check("/api/v1/nodes/a/intent", {"intent": "off"}), [])
        self.assertNotEqual(check("/api/v1/nodes/a/intent", {"intent": "draining", "force": True}), [])
        project = {"cluster": {"name": "c"}, "deployments": [{"name": "a", "command": ["x"], "cpu": True, "readiness": {"tcp": True}}]}
        self.assertEqual(check("/api/v1/project", {"project": project, "if_version": 4, "dry_run": True}), [])
        project["deployments"][0]["readiness"]["htp"] = "/"
        self.assertEqual(check("/api/v1/project", {"project": project}),
                         ["$.project.deployments[0].readiness.htp: is not documented"])
        self.assertNotEqual(self.document.check_request("GET", "/api/v1/nodes", "application/json", "{}"), [])


class TheDocument(unittest.TestCase):
    def test_agrees_with_itself(self):
        self.assertEqual(Document.read(DOCUMENT).check_itself(), [])

    def test_mistakes_in_a_document_are_found(self):
        good = json.loads(DOCUMENT.read_text())

        def broken(change):
            document = copy.deepcopy(good)
            change(document, document["components"]["schemas"])
            return Document(document).check_itself()

        def rename_operation(document, _):
            document["paths"]["/readyz"]["get"]["operationId"] = "healthz"

        def wrong_example(document, _):
            document["paths"]["/api/v1/status"]["get"]["responses"]["200"]["content"]["application/json"]["example"]["epoch"] = "3"

        for change in (
            lambda document, schemas: schemas["Node"].update(minProperties=1),
            lambda document, schemas: schemas["Node"]["required"].append("nme"),
            lambda document, schemas: schemas["Nodes"]["properties"]["nodes"]["items"].update({"$ref": "#/components/schemas/Nod"}),
            lambda document, schemas: schemas.update(Unused={"type": "string"}),
            lambda document, schemas: schemas["Link"]["properties"]["lanes"].update(type="int"),
            lambda document, schemas: document["paths"]["/api/v1/tokens/{ID}"]["parameters"].clear(),
            rename_operation,
            wrong_example,
        ):
            self.assertEqual(len(broken(change)), 1, broken(change))

    def test_has_exactly_the_routes_of_the_server(self):
        source = SOURCE / "src/server/api.cpp"
        if not source.exists():
            self.skipTest("there is no server")
        rows = re.findall(r'\{"([A-Z]+)", "(/api/v1/[^"]*)", (?:Role::(\w+)|std::nullopt), &Api::', source.read_text())
        self.assertGreater(len(rows), 20)
        routes = {(method, path): role for method, path, role in rows}
        documented = {}
        for path, item in json.loads(DOCUMENT.read_text())["paths"].items():
            for method, operation in item.items():
                if method != "parameters" and path.startswith("/api/v1/") and path != "/api/v1/openapi.json":
                    documented[method.upper(), path] = operation.get("x-role", "")
        routes.pop(("GET", "/api/v1/openapi.json"), None)
        self.assertEqual(documented, routes)

    def test_has_the_words_of_the_code(self):
        """Enumerations that the document repeats."""
        schemas = json.loads(DOCUMENT.read_text())["components"]["schemas"]
        for path, variable, words in (
            ("src/fleet/fleet.cpp", "states", schemas["Replica"]["properties"]["state"]["enum"]),
            ("src/fleet/fleet.cpp", "kinds", schemas["Event"]["properties"]["kind"]["enum"]),
            ("src/fleet/fleet.cpp", "roles", schemas["Certificate"]["properties"]["role"]["enum"]),
        ):
            table = re.search(rf"> {variable}\{{\{{(.*?)\}}\}};", (SOURCE / path).read_text(), re.S)[1]
            self.assertEqual(sorted(re.findall(r'"(\w+)"', table)), sorted(words))
        reasons = re.search(r"enum class ReasonKind.*?\{(.*?)\};", (SOURCE / "include/berth/deployment.hpp").read_text(), re.S)[1]
        self.assertEqual(sorted(re.findall(r"^\s*(\w+),", reasons, re.M)), sorted(schemas["Reason"]["properties"]["kind"]["enum"]))
        states = re.search(r"enum class DeploymentState.*?\{(.*?)\};", "".join(
            path.read_text() for path in sorted((SOURCE / "src/controller").glob("*.hpp"))), re.S)[1]
        self.assertEqual(sorted(re.findall(r"^\s*(\w+),", states, re.M)), sorted(schemas["Deployment"]["properties"]["state"]["enum"]))

    def test_has_every_code_of_an_error(self):
        codes = set()
        for path in [*(SOURCE / "src/server").glob("*.cpp"), *(SOURCE / "src/http").glob("*.cpp")]:
            if not path.name.endswith("_test.cpp"):
                codes |= set(re.findall(r'(?:error_response\(|Refusal{)\s*\d+, "(\w+)"', path.read_text()))
                codes |= set(re.findall(r'\bcode = "(\w+)"', path.read_text()))
        schemas = json.loads(DOCUMENT.read_text())["components"]["schemas"]
        self.assertEqual(codes, set(schemas["Error"]["properties"]["error"]["properties"]["code"]["enum"]))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
