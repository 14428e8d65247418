#include "cli/verbs/inventory.hpp"

#include <gtest/gtest.h>

#include <sstream>

#include <boost/json.hpp>

#include "cli/text/devices_text.hpp"
#include "format/inventory_json.hpp"
#include "machine/this_node.hpp"
#include "world/files.hpp"
#include "world/test_units.hpp"

namespace berth::cli {

using namespace format;
using namespace inventory;
using namespace machine;
using namespace world;
namespace {

using world::gib;

constexpr TimePoint sampled{std::chrono::seconds(1000)};

// Eight GPUs in two NVLink islands; the last one is split in two parts
// with the links of their parent.
struct Box {
  std::vector<DeviceRow> rows;
  NodeView node;

  Box() {
    node.id = NodeId("box-1");
    node.cpus = 64;
    node.memory_bytes = 512 * gib;
    node.egress = true;
    for (int i = 0; i < 9; ++i) {
      DeviceRow row;
      const std::string whole = "GPU-" + std::to_string(std::min(i, 7));
      row.info.id = DeviceId(i < 7 ? whole : whole + "/sm64." + std::to_string(i - 7));
      row.info.backend = "cuda";
      row.info.name = "NVIDIA H100 80GB HBM3";
      row.info.ordinal = i;
      row.info.memory_bytes_total = 80 * gib;
      row.info.capability = Capability{9, 0};
      row.info.compute_units = i < 7 ? 132 : 64;
      row.info.pci_address = "0000:0" + std::to_string(std::min(i, 7)) + ":00.0";
      row.info.numa_node = i / 4;
      row.info.memory_domain = row.info.fault_domain = whole;
      row.info.concurrency = 4;
      row.info.features = {"ptx"};
      row.info.labels = {{"rack", "a"}};
      if (i >= 7) row.info.parent = DeviceId(whole);
      row.seen.emplace();
      row.seen->sampled_at = sampled;
      row.seen->load.memory_bytes_free = (80 - static_cast<std::uint64_t>(i)) * gib;
      rows.push_back(row);
      node.devices.push_back(node_device(row));
    }
    for (std::size_t i = 0; i < 9; ++i) {
      for (std::size_t j = i + 1; j < 9; ++j) {
        const bool same = i == 7;
        const bool near = std::min<std::size_t>(i, 7) / 4 == std::min<std::size_t>(j, 7) / 4;
        Link link{rows[i].info.id, rows[j].info.id, LinkKind::system, 0, false};
        if (near) link = {link.a, link.b, LinkKind::nvlink, 4, true};
        if (same) link = {link.a, link.b, LinkKind::same_device, 0, {}};
        node.links.push_back(link);
      }
    }
  }
};

void expect_equal(const NodeView& read, const NodeView& written) {
  EXPECT_EQ(read.id, written.id);
  EXPECT_EQ(read.cpus, written.cpus);
  EXPECT_EQ(read.memory_bytes, written.memory_bytes);
  EXPECT_EQ(read.egress, written.egress);
  EXPECT_EQ(read.links, written.links);
  ASSERT_EQ(read.devices.size(), written.devices.size());
  for (std::size_t i = 0; i < read.devices.size(); ++i) {
    EXPECT_EQ(read.devices[i].info, written.devices[i].info) << i;
    EXPECT_EQ(read.devices[i].memory_bytes_used, written.devices[i].memory_bytes_used) << i;
    EXPECT_EQ(read.devices[i].health, written.devices[i].health) << i;
    EXPECT_EQ(read.devices[i].intent, written.devices[i].intent) << i;
    EXPECT_EQ(read.devices[i].memory_bytes_promised, written.devices[i].memory_bytes_promised) << i;
    EXPECT_EQ(read.devices[i].holders, written.devices[i].holders) << i;
    EXPECT_EQ(read.devices[i].held_exclusively, written.devices[i].held_exclusively) << i;
    EXPECT_EQ(read.devices[i].other_processes, written.devices[i].other_processes) << i;
    EXPECT_EQ(read.devices[i].used_by_others, written.devices[i].used_by_others) << i;
    EXPECT_EQ(read.devices[i].answers, written.devices[i].answers) << i;
  }
}

TEST(Inventory, ReadingAWrittenInventoryGivesTheSame) {
  Box box;
  box.rows[2].error = Error{ErrorCode::device_lost, "gone"};
  box.rows[3].seen.reset();
  box.rows[3].info.memory_bytes_total.reset();
  box.rows[4].intent = Intent::cordoned;
  box.rows[4].holders = 2;
  box.rows[4].memory_bytes_promised = 7 * gib;
  box.rows[5].holders = 1;
  box.rows[5].held_exclusively = true;
  box.rows[6].seen->processes = {{4711, ProcessKind::foreign, "python3", 6 * gib}, {1, ProcessKind::berth, {}, {}}};
  box.rows[7].seen->load.utilization = 0.5;
  for (std::size_t i = 2; i < 8; ++i) box.node.devices[i] = node_device(box.rows[i]);
  EXPECT_EQ(box.node.devices[6].other_processes, 1u);
  EXPECT_TRUE(box.node.devices[6].used_by_others && box.node.devices[7].used_by_others);
  EXPECT_FALSE(box.node.devices[2].answers);
  const auto fleet = read_fleet_json(inventory_to_json(box.node, box.rows, sampled), "box.json");
  ASSERT_TRUE(fleet) << fleet.error().to_text();
  ASSERT_EQ(fleet->nodes.size(), 1u);
  expect_equal(fleet->nodes[0], box.node);
}

TEST(Inventory, SeveralMachinesAreOneFleet) {
  Box first, second;
  second.node.id = NodeId("box-2");
  second.node.links.clear();
  second.node.devices.resize(1);
  second.rows.resize(1);
  second.node.devices[0].info.id = second.rows[0].info.id = DeviceId("GPU-x");
  const std::string text = "\n[ " + inventory_to_json(first.node, first.rows, sampled) + "," +
                           inventory_to_json(second.node, second.rows, sampled) + "]\n";
  EXPECT_TRUE(looks_like_json(text));
  const auto fleet = read_fleet_json(text, "all.json");
  ASSERT_TRUE(fleet) << fleet.error().to_text();
  ASSERT_EQ(fleet->nodes.size(), 2u);
  EXPECT_EQ(fleet->nodes[1].id, NodeId("box-2"));
}

TEST(Inventory, HasNodeDevicesLinksAndIslands) {
  const Box box;
  const auto value = boost::json::parse(inventory_to_json(box.node, box.rows, sampled));
  EXPECT_EQ(value.at("node").at("name").as_string(), "box-1");
  EXPECT_EQ(value.at("node").at("cpus").to_number<int>(), 64);
  EXPECT_EQ(value.at("node").at("memory").to_number<std::uint64_t>(), 512 * gib);
  EXPECT_EQ(value.at("devices").as_array().size(), 9u);
  EXPECT_EQ(value.at("links").as_array().size(), 36u);
  ASSERT_EQ(value.at("islands").as_array().size(), 2u);
  EXPECT_EQ(value.at("islands").at(1).as_array().size(), 5u);
}

TEST(Inventory, ErrorsNameTheirPlace) {
  const auto refused = [](const std::string& text, const std::string& words) {
    const auto fleet = read_fleet_json(text, "f.json");
    ASSERT_FALSE(fleet) << text;
    EXPECT_EQ(fleet.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(fleet.error().message.find(words), std::string::npos) << fleet.error().message;
    EXPECT_TRUE(fleet.error().message.starts_with("f.json")) << fleet.error().message;
  };
  const std::string node = R"({"node": {"name": "a"}, "devices": )";
  refused("{\n  \"node\": oops}", "f.json:2:11: this is not JSON");
  refused("{}", "the inventory has no \"node\"");
  refused(R"({"node": {}, "devices": []})", "the inventory.node has no \"name\"");
  refused(R"({"node": {"name": "a b"}, "devices": []})", "the inventory.node.name is \"a b\"");
  refused(R"({"node": {"name": "a", "cpus": -1}, "devices": []})", "the inventory.node.cpus is not a whole number");
  refused(R"({"node": {"name": "a", "memory": "much"}, "devices": []})", "the inventory.node.memory");
  refused(R"({"node": {"name": "a"}})", "has no \"devices\"");
  refused(node + R"([{"id": "x"}]})", "the inventory.devices[0] has no \"backend\"");
  refused(node + R"([{"id": "", "backend": "cuda"}]})", "the inventory.devices[0].id is empty");
  refused(node + R"([{"id": "x", "backend": "cuda", "health": "helthy"}]})", "did you mean \"healthy\"?");
  refused(node + R"([{"id": "x", "backend": "cuda", "capability": "nine"}]})", "devices[0].capability");
  refused(node + R"([{"id": "x", "backend": "cuda"}, {"id": "x", "backend": "cuda"}]})", "have the id \"x\"");
  refused(node + R"([], "links": [{"a": "x", "b": "y", "kind": "nvlink"}]})", "not among the devices");
  refused(node + R"([], "links": [{"a": "x", "b": "y", "kind": "string"}]})", "links[0].kind is \"string\"");
  refused("[" + node + "[]}," + node + "[]}]", "two nodes are named \"a\"");
  refused("[" + node + "[]}, 7]", "[1] is not an object");
  refused(R"({"format": 2, "node": {"name": "a"}, "devices": []})", "newer version");
}

TEST(Inventory, JsonIsDistinguishedFromToml) {
  EXPECT_TRUE(looks_like_json(" {\"node\": 1}"));
  EXPECT_TRUE(looks_like_json("[\n {}]"));
  EXPECT_TRUE(looks_like_json("[]"));
  EXPECT_FALSE(looks_like_json("[[node]]\nname = \"a\"\n"));
  EXPECT_FALSE(looks_like_json("[cluster]\n"));
  EXPECT_FALSE(looks_like_json("# {\n"));
  EXPECT_FALSE(looks_like_json(""));
}

TEST(Inventory, TheMatrixHasALegendAndFitsTheLine) {
  Box box;
  box.rows.resize(8);
  box.node.devices.resize(8);
  std::erase_if(box.node.links, [](const Link& link) { return link.b == DeviceId("GPU-7/sm64.1"); });
  NodeDevice host;
  host.info.id = DeviceId("host");
  host.info.backend = "host";
  box.node.devices.push_back(host);
  const std::string text = topology_text(box.node, {});
  EXPECT_EQ(text.substr(0, text.find("islands")),
            "        cuda:0    cuda:1    cuda:2    cuda:3    cuda:4    cuda:5    cuda:6    cuda:7\n"
            "cuda:0  .         nvlink 4  nvlink 4  nvlink 4  system!   system!   system!   system!\n"
            "cuda:1  nvlink 4  .         nvlink 4  nvlink 4  system!   system!   system!   system!\n"
            "cuda:2  nvlink 4  nvlink 4  .         nvlink 4  system!   system!   system!   system!\n"
            "cuda:3  nvlink 4  nvlink 4  nvlink 4  .         system!   system!   system!   system!\n"
            "cuda:4  system!   system!   system!   system!   .         nvlink 4  nvlink 4  nvlink 4\n"
            "cuda:5  system!   system!   system!   system!   nvlink 4  .         nvlink 4  nvlink 4\n"
            "cuda:6  system!   system!   system!   system!   nvlink 4  nvlink 4  .         nvlink 4\n"
            "cuda:7  system!   system!   system!   system!   nvlink 4  nvlink 4  nvlink 4  .\n"
            "  nvlink  NVLink, GPU to GPU; with the number of links\n"
            "  system  the bus between NUMA nodes\n"
            "  !       no peer access: copies go through host memory\n");
  EXPECT_NE(text.find("islands: cuda:0 cuda:1 cuda:2 cuda:3, cuda:4 cuda:5 cuda:6 cuda:7\n"), std::string::npos)
      << text;
}

TEST(Inventory, AMatrixThatIsTooWideHasCodesAndThenBlocks) {
  const Box box;
  const auto at = [&](unsigned columns) {
    std::istringstream text(topology_text(box.node, {columns, false, false}));
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) {
      EXPECT_LE(line.size(), columns) << line;
      lines.push_back(line);
    }
    return lines;
  };
  EXPECT_EQ(at(100)[1].find("cuda:0  .         nvlink 4"), 0u);
  EXPECT_EQ(at(80)[1], "cuda:0  .       NV4     NV4     NV4     SYS!    SYS!    SYS!    SYS!    SYS!");
  EXPECT_EQ(at(80)[11], "  NV      NVLink, GPU to GPU; with the number of links");
  EXPECT_EQ(at(60)[0], "        cuda:0  cuda:1  cuda:2  cuda:3  cuda:4  cuda:5");
  EXPECT_EQ(at(60)[10], "        cuda:6  cuda:7  cuda:8") << "the other columns follow below";
}

TEST(Inventory, TheDocumentedCostsAreThoseThatCount) {
  const std::string page = read_text(std::string(BERTH_SOURCE_FOLDER) + "/docs/reference/devices.md").value();
  for (int i = 0; i <= static_cast<int>(LinkKind::system); ++i) {
    const auto kind = static_cast<LinkKind>(i);
    const bool lanes = kind == LinkKind::nvlink || kind == LinkKind::nvswitch;
    const Link link{DeviceId("a"), DeviceId("b"), kind, lanes ? 1u : 0u, true};
    const std::string row = "| `" + std::string(to_string(kind)) + "` | " + std::to_string(link_cost(&link)) +
                            (lanes ? " / links |" : " |");
    EXPECT_NE(page.find(row), std::string::npos) << row;
  }
  EXPECT_NE(page.find("| no link known | " + std::to_string(link_cost(nullptr)) + " |"), std::string::npos);
}

TEST(Inventory, WithoutLinksThereIsNoMatrix) {
  Box box;
  box.node.links.clear();
  EXPECT_EQ(topology_text(box.node, {}), "");
}

}  // namespace
}  // namespace berth::cli
