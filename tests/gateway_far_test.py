#!/usr/bin/env python3
"""Direct replicas on a node whose address is not loopback: they listen for other machines, and gateways connect to the address that the node's
connection comes from."""
import pathlib
import unittest

from fleet_case import in_own_network
from gateway_case import Gateway

ADDRESS, PORT = "10.77.0.1", 8443


class FarNode(Gateway):
    def serve(self, *options):
        super().serve("--listen", f"{ADDRESS}:{PORT}", *options)

    def place(self, node):
        node.url = f"https://{ADDRESS}:{PORT}"

    def test_is_reached_at_the_address_of_its_connection(self):
        self.add_nodes("a")
        self.apply(self.app(where="{address}:{port}", serving={"reach": "direct"}, replicas=1), self.app("near", where="{address}:{port}", replicas=1))
        self.until_answered("/app/x")
        endpoint, = next(deployment for deployment in self.get("endpoints")["deployments"] if deployment["name"] == "app")["endpoints"]
        self.assertRegex(endpoint["address"], rf"^{ADDRESS}:\d+$")
        listening = {line.split()[1] for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:] if line.split()[3] == "0A"}
        self.assertIn(f"00000000:{int(endpoint['address'].rsplit(':')[1]):04X}", listening, "the direct replica listens on every address")
        near, = (replica["port"] for replica in self.get("replicas?deployment=near")["replicas"] if replica["current"])
        self.assertIn(f"0100007F:{near:04X}", listening, "a replica behind the relay listens on the loopback address")


if __name__ == "__main__":
    in_own_network("gateway_far", ADDRESS)
    unittest.main()
