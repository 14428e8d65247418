#include "cli/text/fleet_text.hpp"

#include <boost/json.hpp>

#include "cli/text/test_text.hpp"

namespace berth::cli {

namespace {

namespace json = boost::json;

json::object read(std::string_view text) { return json::parse(text).get_object(); }

const std::string one_pending = R"({"deployment":"chat","replicas":[2],"reason":{"kind":"not_enough_gpus",
  "text":"no node has 2 GPUs free; gpu-1 has 1","gpus_requested":2,"best_node":"gpu-1","gpus_best":1},
  "change":{"text":"put gpu-2 back in service","command":"berth uncordon node/gpu-2"}})";
const std::string status = R"({"schema":1,"version":"0.9.0","server":"box-1","epoch":3,"revision":1207,
 "now_at_ms":1794873600000,"started_at_ms":99994870000000,"project":{"name":"my-cluster","version":42},
 "nodes":{"total":3,"healthy":2,"suspect":0,"lost":1,"cordoned":1},
 "devices":{"total":17,"gpus":16,"free":9,"in_use":6,"unavailable":1,"memory_bytes_total":2422361554944,"memory_bytes_free":1400000000000},
 "deployments":[{"name":"chat","revision":4,"replicas":4,"ready":3,"updated":4,"state":"degraded","reason":"chat/2 is pending: no node has 2 GPUs free"}],
 "pending":[)" + one_pending +
                           "]}";
const std::string replica =
    R"({"name":"chat/0","deployment":"chat","replica":0,"generation":17,"revision":4,"current":true,"state":"ready","node":"gpu-1",
 "devices":["GPU-ea3b8f50-1111-2222-3333-444444444444"],"memory_bytes":42949672960,"exclusive":true,"port":43117,"failures":0,"restarts":2,"job":"j21"})";
const std::string node =
    R"({"name":"gpu-1","health":"healthy","intent":"in_service","last_report_age_s":0.8,"version":"0.9.0","cpus":64,"memory_bytes":540000000000,
 "labels":{"zone":"a"},"taints":["spot"],"egress":false,"clock_offset_s":-3600.5,
 "devices":[{"id":"GPU-ea3b8f50-1111-2222-3333-444444444444","backend":"cuda","name":"NVIDIA H200","ordinal":0,"health":"healthy","intent":"in_service",
   "memory_bytes_total":150754820096,"memory_bytes_free":108000000000,"utilization":0.62,"temperature_celsius":54,
   "holders":[{"kind":"replica","name":"chat/1","user":"ann"},{"kind":"replica","name":"chat/0","user":"ann"},{"kind":"job","name":"j17","user":"bob"},
              {"kind":"lease","name":"12","user":"eve"},{"kind":"foreign","name":"python3","user":"root"}]},
  {"id":"GPU-5b1c0000-1111-2222-3333-444444444444","backend":"cuda","ordinal":1,"health":"healthy","intent":"cordoned","holders":[]},
  {"id":"host-0","backend":"host","ordinal":0,"health":"healthy","intent":"in_service","holders":[]}],
 "replicas":[)" +
    replica + "]}";

TEST(FleetText, StatusIsOneScreenWithWhatIsPendingFirst) {
  EXPECT_EQ(status_text(read(status), {}),
            "my-cluster, version 42; server box-1, berth 0.9.0, up 0 s\n"
            "nodes    3: 2 healthy, 1 lost, 1 cordoned or draining\n"
            "GPUs     16: 9 free, 6 in use, 1 unavailable; 1.3 TiB of 2.2 TiB free; 1 other device\n"
            "\n"
            "! chat/2  pending: no node has 2 GPUs free; gpu-1 has 1\n"
            "  would fit: put gpu-2 back in service: berth uncordon node/gpu-2\n"
            "\n"
            "DEPLOYMENT  STATE     READY  UPDATED  REVISION\n"
            "chat        degraded    3/4        4         4\n");
  expect_fits_narrow_terminals([](const Style& style) { return status_text(read(status), style); });
}

TEST(FleetText, TheReasonOfMostReplicasComesFirst) {
  const auto pending = [](const std::string& name, const std::string& replicas, const std::string& kind) {
    return R"({"deployment":")" + name + R"(","replicas":)" + replicas + R"(,"reason":{"kind":")" + kind +
           R"(","text":"because of )" + kind + R"("}})";
  };
  const auto answer = read(R"({"schema":1,"replicas":[],"pending":[)" + pending("a", "[]", "taint") + "," +
                           pending("b", "[0,1,2,5]", "not_enough_gpus") + "," + pending("c", "[0]", "taint") + "," +
                           pending("d", "[0]", "not_enough_gpus") + "]}");
  EXPECT_EQ(replicas_text(answer, {}),
            "! b/0-2, 5  pending: because of not_enough_gpus\n"
            "! d/0  pending: because of not_enough_gpus\n"
            "! a  pending: because of taint\n"
            "! c/0  pending: because of taint\n");
}

TEST(FleetText, NodesShowFreeGpusAndTheAgeOfTheirReport) {
  const json::object answer = read(
      R"({"schema":1,"nodes":[)" + node +
      R"(,{"name":"gpu-2","health":"lost","health_reason":"no report for 49 s; check that the machine is running","intent":"draining",
 "devices":[{"id":"GPU-5","backend":"cuda","health":"healthy","intent":"in_service","holders":[]}]}]})");
  EXPECT_EQ(nodes_text(answer, {}),
            "NODE   HEALTH   INTENT      FREE GPUS  REPLICAS  CPUS     MEMORY  REPORT  VERSION\n"
            "gpu-1  healthy  in service     0 of 2         1    64  502.9 GiB     0 s  0.9.0\n"
            "gpu-2  lost     draining       0 of 1         0     -          -       -  -\n"
            "\n"
            "! gpu-2  is lost: no report for 49 s; check that the machine is running\n");
  expect_fits_narrow_terminals([&](const Style& style) { return nodes_text(answer, style); });
  const json::object cordoned = read(
      R"({"schema":1,"nodes":[{"name":"gpu-2","health":"healthy","intent":"cordoned","devices":[{"id":"GPU-5","backend":"cuda","health":"healthy","intent":"in_service","holders":[]}]}]})");
  EXPECT_NE(nodes_text(cordoned, {}).find("cordoned     0 of 1"), std::string::npos) << nodes_text(cordoned, {});
  EXPECT_NE(nodes_text(read(R"({"schema":1,"nodes":[]})"), {}).find("berth token add join"), std::string::npos);
}

TEST(FleetText, ANodeShowsItsDevicesWithTheirHolders) {
  const json::object answer = read(R"({"schema":1,"node":)" + node + "}");
  const std::string text = node_text(answer, Style{200, false, false});
  EXPECT_NE(text.find("gpu-1: healthy, in service; last report 0 s ago\n"), std::string::npos) << text;
  EXPECT_NE(text.find("labels zone=a\ntaints spot\nits clock is 1 h behind the server's\n"), std::string::npos) << text;
  EXPECT_NE(text.find("cuda:0  GPU-ea3b8f50  NVIDIA H200  healthy   100.6 GiB of 140.4 GiB   62%  54 C  "
                      "chat/0, chat/1, j17 (bob), lease 12 (eve), foreign python3 (root)\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("cuda:1  GPU-5b1c0000  -            cordoned                       -     -     -  -\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("chat/0   ready  gpu-1  GPU-ea3b8f50  40.0 GiB         4  43117         2    -\n"),
            std::string::npos)
      << text;
  expect_fits_narrow_terminals([&](const Style& style) { return node_text(answer, style); });
}

TEST(FleetText, AllDevicesOfTheFleetAreInOneTable) {
  std::string other = node;
  other.replace(other.find("gpu-1"), 5, "gpu-2");
  const json::object answer = read(R"({"schema":1,"nodes":[)" + node + "," + other + "]}");
  const std::string text = fleet_devices_text(answer, Style{200, false, false});
  EXPECT_TRUE(text.starts_with("NODE   DEVICE  ID ")) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 7) << text;
  EXPECT_NE(text.find("\ngpu-2  cuda:1  GPU-5b1c0000  -            cordoned"), std::string::npos) << text;
  EXPECT_NE(text.find("gpu-1  cuda:0  GPU-ea3b8f50  NVIDIA H200  healthy   100.6 GiB of 140.4 GiB   62%  54 C  "
                      "chat/0, chat/1, j17 (bob), lease 12 (eve), foreign python3 (root)\n"),
            std::string::npos)
      << text;
  expect_fits_narrow_terminals([&](const Style& style) { return fleet_devices_text(answer, style); });
  EXPECT_EQ(fleet_devices_text(read(R"({"schema":1,"nodes":[]})"), {}), "no node has reported a device\n");
}

TEST(FleetText, ANameOfADeviceIsNotCutWhileLessImportantColumnsAreShown) {
  const json::object answer =
      read(R"({"schema":1,"node":{"name":"a","health":"healthy","intent":"in_service","devices":[
    {"id":"SIM-GPU-0001","backend":"simulated","ordinal":0,"name":"Simulated H100","health":"healthy","intent":"in_service",
     "memory_bytes_total":85899345920,"memory_bytes_free":85899345920,"utilization":0.5,"temperature_celsius":40,
     "holders":[{"kind":"replica","name":"embeddings-large/0"}]}]}})");
  EXPECT_NE(node_text(answer, {}).find(" Simulated H100 "), std::string::npos) << node_text(answer, {});
}

TEST(FleetText, SubjectsOfEventsShareAColumn) {
  const auto event = [](const std::string& subject) {
    return R"({"at_ms":0,"kind":"ready","actor":"controller","subject":")" + subject + R"(","text":"it happened"})";
  };
  EXPECT_EQ(events_text(read(R"({"events":[)" + event("chat") + "," + event("gateway/box-ops") + "," +
                             event("a-deployment-with-a-very-long-name/0") + "]}"),
                        {}),
            "1970-01-01 00:00:00  ready       chat                      it happened (controller)\n"
            "1970-01-01 00:00:00  ready       gateway/box-ops           it happened (controller)\n"
            "1970-01-01 00:00:00  ready       a-deployment-with-a-very-long-name/0  it happened (controller)\n");
}

// The id has 60 characters, as ids of some drivers have.
TEST(FleetText, ALongIdHidesNoOtherColumn) {
  const json::object answer = read(R"({"schema":1,"node":{"name":"gpu-1","health":"healthy","intent":"in_service",
      "devices":[{"id":"a-device-whose-driver-gives-names-that-are-very-long-indeed0","backend":"opencl","ordinal":0,
        "name":"some processor","health":"healthy","intent":"in_service","memory_bytes_total":17179869184,
        "memory_bytes_free":12884901888,"holders":[]}],
      "replicas":[{"name":"chat/0","state":"ready","node":"gpu-1","memory_bytes":0,"revision":1,"current":true,
        "devices":["a-device-whose-driver-gives-names-that-are-very-long-indeed0"]}]}})");
  const std::string text = node_text(answer, Style{80, false, false});
  for (const char* const shown : {"DEVICE", "ID", "STATE", "FREE MEMORY", "HELD BY", "opencl:0", "12.0 GiB of 16.0 GiB",
                                  "REPLICA", "chat/0", "gpu-1"})
    EXPECT_NE(text.find(shown), std::string::npos) << shown << " in\n" << text;
  const std::size_t first = text.find("~-indeed0");
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_NE(text.find("~-indeed0", first + 1), std::string::npos) << "also with its replica:\n" << text;
}

TEST(FleetText, ALostDeviceIsNamedAndShowsNoMeasurements) {
  json::object answer = read(R"({"schema":1,"node":)" + node + "}");
  json::object& device = answer["node"].get_object()["devices"].get_array()[0].get_object();
  device["memory_bytes_promised"] = 8'000'000'000;
  EXPECT_NE(node_text(answer, Style{200, false, false}).find(" 93.1 GiB of 140.4 GiB "), std::string::npos);
  device["health"] = "lost";
  const std::string text = node_text(answer, Style{80, false, false});
  EXPECT_NE(text.find("! gpu-1  GPU-ea3b8f50 is lost\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("140.4 GiB"), std::string::npos) << text;
  EXPECT_EQ(text.find("54 C"), std::string::npos) << text;
  device["advice"] = "reset it";
  EXPECT_NE(node_text(answer, {}).find("! gpu-1  GPU-ea3b8f50 is lost; reset it\n"), std::string::npos);
  // `berth drain node/gpu-1/ID` needs the whole id.
  EXPECT_NE(text.find("GPU-5b1c0000 "), std::string::npos) << text;
  json::object all = read(status);
  all["unhealthy_devices"] =
      json::parse(R"([{"node":"gpu-1","device":"GPU-ea3b8f50-1111-2222-3333-444444444444","health":"lost"}])");
  EXPECT_NE(status_text(all, {}).find("\n! gpu-1  GPU-ea3b8f50 is lost\n"), std::string::npos);
}

TEST(FleetText, TheDevicesOfALostNodeAreUnknownSinceItWasLastSeen) {
  const json::object answer =
      read(R"({"schema":1,"node":{"name":"gpu-2","health":"lost","intent":"in_service","last_report_age_s":180,
    "devices":[{"id":"GPU-5b1c0000-1111-2222-3333-444444444444","backend":"cuda","ordinal":0,"memory_bytes_total":150754820096,
                "intent":"in_service","holders":[]}]}})");
  const std::string text = node_text(answer, Style{200, false, false});
  EXPECT_NE(text.find("\nits devices were last seen 3 min ago\n"), std::string::npos) << text;
  EXPECT_NE(text.find("cuda:0  GPU-5b1c0000  -     unknown            -     -     -  -\n"), std::string::npos) << text;
}

TEST(FleetText, AProblemOfANodeIsShownAsTheServerSaysIt) {
  json::object answer = read(R"({"schema":1,"node":)" + node + R"(,"nodes":[)" + node + "]}");
  answer["node"].get_object()["problem"] = "its last report was refused";
  answer["nodes"].get_array()[0] = answer["node"];
  for (const auto& text : {node_text, nodes_text})
    EXPECT_NE(text(answer, {}).find("\n! gpu-1  its last report was refused\n"), std::string::npos) << text(answer, {});
  json::object all = read(status);
  all["warnings"] = json::parse(R"([{"subject":"store","text":"1 node ignores this server"}])");
  EXPECT_NE(status_text(all, {}).find("\n! store: 1 node ignores this server\n"), std::string::npos);
}

TEST(FleetText, TheUserWhoTookADeviceOutOfServiceIsNamed) {
  json::object answer = read(R"({"schema":1,"node":)" + node + R"(,"nodes":[)" + node + "]}");
  const std::string line = "! gpu-1  GPU-5b1c0000 is cordoned by ann\n";
  EXPECT_EQ(node_text(answer, {}).find(line), std::string::npos);
  answer["node"].get_object()["devices"].get_array()[1].get_object()["intent_by"] = "ann";
  answer["nodes"].get_array()[0] = answer["node"];
  EXPECT_NE(node_text(answer, {}).find(line), std::string::npos) << node_text(answer, {});
  EXPECT_NE(nodes_text(answer, {}).find(line), std::string::npos) << nodes_text(answer, {});
  json::object all = read(status);
  all["cordoned_devices"] = json::parse(
      R"([{"node":"gpu-1","device":"GPU-5b1c0000-1111-2222-3333-444444444444","intent":"cordoned","intent_by":"ann"}])");
  EXPECT_NE(status_text(all, {}).find("\n" + line), std::string::npos) << status_text(all, {});
}

TEST(FleetText, TheReasonOfACordonIsShownWithIt) {
  json::object answer = read(R"({"schema":1,"node":)" + node + R"(,"nodes":[)" + node + "]}");
  json::object& cordoned = answer["node"].get_object();
  cordoned["intent"] = "cordoned";
  cordoned["intent_by"] = "user:ann";
  cordoned["intent_reason"] = "new power supply";
  json::object& device = cordoned["devices"].get_array()[1].get_object();
  device["intent_by"] = "user:bob";
  device["intent_reason"] = "its fan is loud";
  answer["nodes"].get_array()[0] = answer["node"];
  const std::string of_node = "is cordoned by user:ann: new power supply\n",
                    of_device = "! gpu-1  GPU-5b1c0000 is cordoned by user:bob: its fan is loud\n";
  EXPECT_NE(nodes_text(answer, {}).find("! gpu-1  " + of_node), std::string::npos) << nodes_text(answer, {});
  EXPECT_NE(nodes_text(answer, {}).find(of_device), std::string::npos) << nodes_text(answer, {});
  EXPECT_NE(node_text(answer, {}).find("cordoned by user:ann: new power supply; last report"), std::string::npos)
      << node_text(answer, {});
  json::object all = read(status);
  all["unavailable_nodes"] = json::parse(
      R"([{"node":"gpu-1","health":"healthy","intent":"cordoned","intent_by":"user:ann","intent_reason":"new power supply"}])");
  EXPECT_NE(status_text(all, {}).find("\n! gpu-1  " + of_node), std::string::npos) << status_text(all, {});
  json::object& drained = all["unavailable_nodes"].get_array()[0].get_object();
  drained["intent"] = "draining";
  for (const auto& [replicas, words] : {std::pair(1, "being drained"), std::pair(0, "drained")}) {
    drained["replicas"] = replicas;
    const std::string line = std::string("\n! gpu-1  is ") + words + " by user:ann: new power supply\n";
    EXPECT_NE(status_text(all, {}).find(line), std::string::npos) << status_text(all, {});
  }
}

TEST(FleetText, ASilentNodeSaysSinceWhenAndWhatFollows) {
  json::object all = read(status);
  all["nodes"].get_object()["awaited"] = 1;
  all["unavailable_nodes"] = json::parse(
      R"([{"node":"gpu-2","health":"suspect","health_reason":"no report for 9 s; its replicas start elsewhere after 30 s","intent":"in_service","replicas":1},
          {"node":"gpu-3","health":"unknown","health_reason":"it has not reported to this server yet","intent":"in_service","replicas":1}])");
  const std::string text = status_text(all, {});
  EXPECT_NE(text.find("3: 2 healthy, 1 lost, 1 unknown, 1 cordoned or draining\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n! gpu-2  is suspect: no report for 9 s; its replicas start elsewhere after 30 s\n"
                      "! gpu-3  has an unknown state: it has not reported to this server yet\n"),
            std::string::npos)
      << text;
}

TEST(FleetText, APauseIsSaidOnce) {
  const json::object answer =
      read(R"({"schema":1,"deployment":{"name":"chat","revision":4,"replicas":4,"ready":3,"updated":1,"state":"paused",
 "reason":"paused by user:ann","rollout":{"paused":true,"reason":"paused by user:ann"}},
 "deployments":[{"name":"chat","state":"paused","reason":"paused by user:ann"}]})");
  EXPECT_NE(rollout_text(answer, {}).find("\nits rollout is paused by user:ann (berth rollout resume|undo)\n"),
            std::string::npos);
  EXPECT_NE(deployments_text(answer, {}).find("\n! chat  paused by user:ann\n"), std::string::npos);
}

TEST(FleetText, AnOlderIncarnationHasItsGenerationInItsName) {
  std::string old = replica;
  old.replace(old.find("true"), 4, "false");
  const std::string text = replicas_text(
      read(R"({"schema":1,"replicas":[)" + replica + "," + old + R"(],"pending":[)" + one_pending + "]}"), {});
  EXPECT_NE(text.find("\nchat/0     ready"), std::string::npos) << text;
  EXPECT_NE(text.find("\nchat/0#17  ready"), std::string::npos) << text;
  EXPECT_NE(text.find("\n\n! chat/2  pending: no node has 2 GPUs free; gpu-1 has 1\n"), std::string::npos) << text;
}

TEST(FleetText, AReplicaExplainsItself) {
  const json::object answer = read(R"({"schema":1,"name":"chat/2","deployment":"chat","replica":2,"incarnations":[],
 "why":{"text":"no node has 2 GPUs free; gpu-1 has 1","funnel":[{"name":"nodes","left":3},{"name":"in service","left":2},{"name":"2 GPUs","left":0}],
  "nodes":[{"node":"gpu-1","fits":false,"text":"1 of 4 GPUs is free"}],"changes":[{"text":"ask for 1 GPU instead of 2"}]},
 "events":[{"id":101,"at_ms":1794873600000,"kind":"pending","actor":"controller","subject":"chat/2","text":"fits nowhere, GPU-ea3b8f50-1111-2222-3333-444444444444 is full"}]})");
  EXPECT_EQ(replica_text(answer, {}),
            "chat/2: no node has 2 GPUs free; gpu-1 has 1\n"
            "3 nodes -> 2 in service -> 0 2 GPUs\n"
            "\n"
            "NODE   FITS\n"
            "gpu-1  no    1 of 4 GPUs is free\n"
            "\n"
            "what would let it fit\n"
            "- ask for 1 GPU instead of 2\n"
            "\n"
            "events\n"
            "2026-11-17 00:00:00  pending     chat/2            fits nowhere, GPU-ea3b8f50 is full (controller)\n");
}

TEST(FleetText, ADeploymentShowsItsRolloutAndSpec) {
  const json::object answer =
      read(R"({"schema":1,"deployment":{"name":"chat","revision":4,"replicas":4,"ready":3,"updated":1,"state":"paused",
 "reason":"the rollout is paused","spec":{"name":"chat","model":"llama","replicas":4,"command":["serve","{port}"]},
 "rollout":{"revision":4,"surge":1,"unavailable":1,"paused":true,"reason":"chat/0 failed 3 times","undo_revisions":3}}})");
  EXPECT_EQ(deployment_text(answer, {}),
            "chat: paused\n"
            "revision 4: 3 of 4 ready, 1 updated\n"
            "its rollout is paused: chat/0 failed 3 times (berth rollout resume|undo)\n"
            "rollout: surge 1, unavailable 1; 3 undo steps\n"
            "\n"
            "spec\n"
            "  model           llama\n"
            "  replicas        4\n"
            "  command         [\"serve\",\"{port}\"]\n");
}

TEST(FleetText, EveryEarlierRevisionIsListedAndItsFieldsAreNamedAsInTheFile) {
  const json::object answer =
      read(R"({"schema":1,"deployment":{"name":"chat","revision":4,"replicas":1,"ready":1,"updated":1,"state":"serving",
 "rollout":{"revision":4,"surge":1,"unavailable":1,"undo_revisions":3,"earlier":[{"revision":3,"fields":["command","unready_within_s"]},
   {"revision":2,"fields":[]},{"revision":1,"fields":["memory_bytes"]}]}}})");
  EXPECT_EQ(rollout_text(answer, {}),
            "chat: serving\n"
            "revision 4: 1 of 1 ready, 1 updated\n"
            "rollout: surge 1, unavailable 1; 3 undo steps\n"
            "  revision 3 differed in command, unready_within\n"
            "  revision 2 is the same as 4\n"
            "  revision 1 differed in memory\n");
}

TEST(FleetText, TokensShowNoText) {
  const std::string text = tokens_text(read(R"({"schema":1,"tokens":[
 {"id":"t3","role":"join","made_by":"user:ann","made_at_ms":1794873600000,"expires_at_ms":1794877200000},
 {"id":"t4","role":"node","node":"gpu-1","made_by":"token:t3","made_at_ms":1794873700000},
 {"id":"t5","role":"call","deployment":"chat","name":"app","made_by":"user:ann","made_at_ms":1794873700000},
 {"id":"t6","role":"join","gateway":true,"made_by":"user:ann","made_at_ms":1794873700000},
 {"id":"t7","role":"gateway","name":"edge","made_by":"token:t6","made_at_ms":1794873700000}]})"),
                                       {});
  EXPECT_EQ(text,
            "ID  ROLE     FOR           MADE BY   MADE (UTC)           EXPIRES (UTC)\n"
            "t3  join     -             user:ann  2026-11-17 00:00:00  2026-11-17 01:00:00\n"
            "t4  node     node gpu-1    token:t3  2026-11-17 00:01:40  -\n"
            "t5  call     chat, by app  user:ann  2026-11-17 00:01:40  -\n"
            "t6  join     a gateway     user:ann  2026-11-17 00:01:40  -\n"
            "t7  gateway  gateway edge  token:t6  2026-11-17 00:01:40  -\n");
}

TEST(FleetText, NamesFromElsewhereCannotMoveTheCursor) {
  json::object answer = read(status);
  answer["pending"] = json::array();
  answer["deployments"].get_array()[0].get_object()["reason"] = hostile_name;
  expect_escaped(status_text(answer, Style{300, false, false}));
  json::object nodes = read(R"({"schema":1,"nodes":[)" + node + "]}");
  nodes["nodes"].get_array()[0].get_object()["name"] = hostile_name;
  expect_escaped(nodes_text(nodes, Style{300, false, false}));
}

// Answers of other versions: "-" stands for missing values.
TEST(FleetText, AnythingMayBeMissingOrOfAnotherKind) {
  const json::object odd = read(R"({"nodes":[1,null,{"name":7,"devices":{}}],"node":"x","deployments":[[]],
    "deployment":{"spec":3},"replicas":[{"devices":[1]}],"pending":[{},{"replicas":["a",-1],"reason":4}],
    "why":{"funnel":[3],"changes":[{}]},"events":[{"at_ms":-1e300}],"tokens":[{"made_at_ms":1e300}],"project":{"name":1}})");
  for (const auto& text : {status_text, nodes_text, node_text, deployments_text, deployment_text, replicas_text,
                           replica_text, events_text, tokens_text}) {
    EXPECT_NE(text(odd, {}).find('-'), std::string::npos);
    EXPECT_EQ(text({}, {}).find("null"), std::string::npos);
  }
}

}  // namespace
}  // namespace berth::cli
