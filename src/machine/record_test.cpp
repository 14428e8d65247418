#include "machine/record_store.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <map>

#include "placement/test_fleet.hpp"
#include "world/files.hpp"

namespace berth::machine {
namespace {

using namespace format;
using placement::gib;
using placement::TestFleet;

// Random devices of all kinds, and a request with all requirements.
struct Situation {
  TestFleet fleet;
  Requirements requirements;
  Topology topology;

  explicit Situation(std::uint64_t seed) : fleet(TestFleet::random(1 + seed % 9, seed)) {
    SeededRandom random(splitmix64(seed));
    const auto some = [&] { return fleet.info(random.below(fleet.size())).id; };
    std::vector<DeviceId> ids;
    std::vector<Link> links;
    for (std::size_t i = 0; i < fleet.size(); ++i) {
      DeviceInfo& info = fleet.info(i);
      ids.push_back(info.id);
      for (std::size_t j = 0; j < i; ++j) {
        const auto access = random.below(2) == 0 ? std::optional(random.below(2) == 0) : std::nullopt;
        if (random.below(2) == 0) links.push_back({ids[j], ids[i], static_cast<LinkKind>(random.below(8)), 2, access});
      }
      if (random.below(2) == 0) info.features = {"ptx", "graphs"};
      if (random.below(2) == 0) info.labels = {{"zone", "a"}};
      if (random.below(2) == 0) info.memory_domain = "gpu";
      fleet[i].holders = static_cast<std::uint32_t>(random.below(3));
      fleet[i].held_exclusively = random.below(8) == 0;
    }
    topology = make_topology(ids, links).value();
    requirements.cost = static_cast<double>(random.below(1000)) / 7;
    if (random.below(2) == 0) requirements.memory_bytes_min = random.below(4 * gib);
    if (random.below(3) == 0) requirements.memory_share = static_cast<double>(1 + random.below(1000)) / 3000;
    if (random.below(3) == 0) requirements.capability_min = Capability{static_cast<std::int32_t>(random.below(10)), 0};
    if (random.below(3) == 0) requirements.priority = Priority::high;
    if (random.below(3) == 0) requirements.backends = {"simulated"};
    if (random.below(4) == 0) requirements.features = {"ptx"};
    if (random.below(4) == 0) requirements.labels = {{"zone", "a"}};
    if (random.below(4) == 0) requirements.only = {some(), some()};
    if (random.below(4) == 0) requirements.avoid = {some()};
    if (random.below(4) == 0) requirements.prefer = {some()};
    if (random.below(4) == 0) requirements.near = some();
    requirements.exclusive = random.below(5) == 0;
    requirements.whole = random.below(5) == 0;
    for (std::size_t i = 0; i < fleet.size(); ++i) {
      fleet[i].used_by_others = random.below(3) == 0;
      fleet[i].kept_for_waiting = random.below(8) == 0;
      fleet[i].other_processes = static_cast<std::uint32_t>(random.below(3));
    }
  }

  DecisionRecord record(std::uint64_t seed) const {
    const Policy& policy = policies()[seed % policies().size()];
    Explanation explanation;
    choose_group(policy, requirements, 1 + seed % 3, fleet, topology, splitmix64(seed), &explanation);
    return make_record("pick", "/usr/bin/python3", explanation, fleet, topology);
  }
};

std::string text_of(const DecisionRecord& record) { return boost::json::serialize(record_to_json(record)); }

class Folder {
 public:
  Folder() {
    std::string pattern = testing::TempDir() + "berth-records-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~Folder() {
    ::chmod(path_.c_str(), 0700);
    std::filesystem::remove_all(path_);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(Record, ARecordReadBackGivesTheSameDecision) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const Situation situation(seed);
    const DecisionRecord record = situation.record(seed);
    const Result<DecisionRecord> read = read_record(text_of(record), "r.json");
    ASSERT_TRUE(read) << read.error().to_text();
    ASSERT_EQ(text_of(*read), text_of(record)) << "seed " << seed;
    ASSERT_EQ(read->requirements.cost, record.requirements.cost) << "to the last bit";
    ASSERT_EQ(read->requirements.memory_share, record.requirements.memory_share);
    ASSERT_EQ(read->requirements.whole, record.requirements.whole);
    for (std::size_t i = 0; i < record.devices.size(); ++i) {
      ASSERT_EQ(read->devices[i].view.used_by_others, record.devices[i].view.used_by_others);
      ASSERT_EQ(read->devices[i].view.kept_for_waiting, record.devices[i].view.kept_for_waiting);
      ASSERT_EQ(read->devices[i].view.other_processes, record.devices[i].view.other_processes);
    }
    const Explanation again = decide_again(*read).value();
    ASSERT_EQ(again.winners, record.winners) << "seed " << seed;
    ASSERT_EQ(again.reason(), record.reason) << "seed " << seed;
    ASSERT_EQ(again.funnel_text(), record.funnel) << "seed " << seed;
  }
}

TEST(Record, ContainsOnlyTheBaseNameOfTheCommand) {
  const Situation situation(3);
  EXPECT_EQ(situation.record(3).program, "python3");
  Explanation explanation;
  EXPECT_EQ(make_record("run", "serve", explanation, {}, {}).program, "serve");
  EXPECT_EQ(make_record("pick", "", explanation, {}, {}).program, "");
}

TEST(Record, ATruncatedOrDamagedFileIsAnErrorOrAValidRecord) {
  // Random truncation and bit flips give an error with the file's name, or a valid record.
  std::size_t refused = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    SeededRandom random(seed);
    std::string text = text_of(Situation(seed % 20).record(seed % 20));
    if (random.below(2) == 0) text.resize(random.below(text.size()));
    for (std::uint64_t flips = random.below(4); flips > 0 && !text.empty(); --flips)
      text[random.below(text.size())] ^= static_cast<char>(1U << random.below(8));
    const Result<DecisionRecord> read = read_record(text, "torn.json");
    if (!read) {
      ++refused;
      ASSERT_TRUE(read.error().message.starts_with("torn.json")) << read.error().message;
      ASSERT_FALSE(read.error().advice.empty());
      continue;
    }
    const auto again = decide_again(*read);
    ASSERT_TRUE(!again || !again->to_text().empty());
  }
  EXPECT_GT(refused, 2000U);
}

TEST(Record, AHostileOrForeignFileIsAnError) {
  const DecisionRecord record = Situation(4).record(4);
  const auto refusal_with = [&](auto change) {
    boost::json::object object = record_to_json(record);
    change(object);
    const auto read = read_record(boost::json::serialize(object), "x.json");
    return read ? "read" : read.error().message;
  };
  using Object = boost::json::object;
  const auto device = [](Object& o) -> Object& { return o["devices"].as_array()[0].as_object(); };
  EXPECT_EQ(refusal_with([](Object&) {}), "read");
  EXPECT_EQ(read_record("", "x.json").error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(read_record("[]", "x.json").error().message,
            "x.json is not the record of a decision: the record is not an object");
  EXPECT_EQ(read_record("{}", "x.json").error().message,
            "x.json is not the record of a decision: the record has no \"version\"");
  EXPECT_EQ(refusal_with([](Object& o) { o["version"] = record_version + 1; }),
            "x.json was recorded by a newer version of berth");
  const auto is_refused = [&](auto change, std::string_view words) {
    const std::string message = refusal_with(change);
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  is_refused([](Object& o) { o["count"] = 0; }, ".count is zero");
  is_refused([](Object& o) { o["count"] = 1e30; }, ".count is not a whole number");
  is_refused([](Object& o) { o["count"] = 1u << 30; }, ".count is too large");
  is_refused([](Object& o) { o["secret"] = 1; }, "a key \"secret\"");
  is_refused([](Object& o) { o["id"] = "../../etc/passwd"; }, ".id is not a name");
  is_refused([](Object& o) { o["verb"] = "\x1b[2J"; }, "control characters");
  is_refused([](Object& o) { o["hints"].as_object()["memory_share"] = "7"; }, "at most 1");
  is_refused([](Object& o) { o["hints"].as_object()["cost"] = "nan"; }, "not a number");
  is_refused([&](Object& o) { device(o)["weight_milli"] = 0; }, "weight_milli is zero");
  is_refused([&](Object& o) { device(o)["health"] = "fine"; }, "\"fine\", which is not known");
  is_refused([](Object& o) { o["devices"].as_array().push_back(o["devices"].as_array()[0]); }, "names a device twice");
  is_refused([](Object& o) { o["outcome"].as_object()["winners"] = boost::json::array{"unknown"}; },
             "not among the devices");
  is_refused([](Object& o) { o["links"] = {{{"a", "x"}, {"b", "y"}, {"kind", "nvlink"}}}; }, ".links: ");
  is_refused([](Object& o) { o["policy"] = 3; }, ".policy is not text");
  DecisionRecord unknown = record;
  unknown.policy = "leest_loaded";
  EXPECT_EQ(decide_again(read_record(text_of(unknown), "x").value()).error().code, ErrorCode::not_found);
}

TEST(Record, AnEditedRecordIsDetected) {
  const DecisionRecord record = Situation(4).record(4);
  using Object = boost::json::object;
  const auto read_with = [&](auto change) {
    Object object = record_to_json(record);
    change(object);
    return read_record(boost::json::serialize(object), "x.json");
  };
  const auto info = [](Object& o) -> Object& { return o["devices"].as_array()[0].as_object()["info"].as_object(); };
  const auto edited = read_with([&](Object& o) { info(o)["capability"] = "8.0"; });
  ASSERT_FALSE(edited);
  EXPECT_EQ(edited.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(edited.error().message, "x.json was edited after the decision was recorded");
  EXPECT_FALSE(read_with([](Object& o) { o["outcome"].as_object()["reason"] = "because"; }));
  EXPECT_FALSE(read_with([](Object& o) { o.erase("check"); }));
  EXPECT_TRUE(read_with([](Object& o) { o["explanation"] = "what berth why --json adds"; }));
  EXPECT_TRUE(read_with([](Object& o) {
    // The order of members does not matter.
    Object sorted;
    std::map<std::string, boost::json::value> members;
    for (const auto& member : o) members.emplace(member.key(), member.value());
    for (const auto& [key, value] : members) sorted[key] = value;
    o = sorted;
  }));
}

TEST(Record, ARecordOfTheFirstVersionIsStillRead) {
  const Situation situation(4);
  boost::json::object object = record_to_json(situation.record(4));
  object["version"] = 1;
  object.erase("check");
  for (boost::json::value& device : object["devices"].as_array()) {
    for (const char* key : {"used_by_others", "kept_for_waiting", "other_processes"}) device.as_object().erase(key);
  }
  const auto read = read_record(boost::json::serialize(object), "old.json");
  ASSERT_TRUE(read) << read.error().to_text();
  EXPECT_EQ(read->devices[0].view.other_processes, 0U);
}

TEST(RecordStore, KeepsTheLatestRecordsOfOneUser) {
  const Folder folder;
  EXPECT_TRUE(record_ids(folder.path() + "/absent").empty());
  EXPECT_EQ(load_record(folder.path(), "").error().code, ErrorCode::unavailable);
  DecisionRecord record = Situation(1).record(1);
  for (std::size_t i = 0; i < records_max + 5; ++i) {
    record.id = "r-" + std::to_string(1000 + i);
    ASSERT_TRUE(store_record(folder.path(), record));
  }
  std::vector<std::string> ids = record_ids(folder.path());
  EXPECT_EQ(ids.size(), records_max);
  EXPECT_EQ(ids.front(), "r-1005");
  EXPECT_EQ(load_record(folder.path(), "")->id, "r-1260");
  EXPECT_EQ(load_record(folder.path(), "r-1100")->id, "r-1100");
  EXPECT_EQ(load_record(folder.path(), "r-126")->id, "r-1260") << "the only id with that prefix";
  EXPECT_EQ(load_record(folder.path(), "r-12").error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(load_record(folder.path(), "r-1001").error().code, ErrorCode::not_found);
  EXPECT_EQ(load_record(folder.path(), "../r-1100").error().code, ErrorCode::not_found);
  struct stat status{};
  ASSERT_EQ(::stat((folder.path() + "/000000000261.r-1260.json").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600U);
}

TEST(RecordStore, RecordsAreOrderedByStorageEvenIfTheClockJumps) {
  const Folder folder;
  std::ofstream(folder.path() + "/20991231-000000.000000-1.json") << "of a version that wrote no number";
  DecisionRecord record = Situation(1).record(1);
  for (const char* const id : {"20991115-120000.000000-7", "20261115-120000.000000-8", "20261115-110000.000000-9"}) {
    record.id = id;
    ASSERT_TRUE(store_record(folder.path(), record));
  }
  EXPECT_EQ(load_record(folder.path(), "")->id, "20261115-110000.000000-9");
  // The record stored first is removed, not the one with the smallest id.
  record.id = "20991115-130000.000000-7";
  for (std::size_t i = 0; i < records_max; ++i) {
    record.id.back() = static_cast<char>('0' + i % 10);
    ASSERT_TRUE(store_record(folder.path(), record));
  }
  record.id = "20261115-120000.000000-8";
  ASSERT_TRUE(store_record(folder.path(), record));
  EXPECT_EQ(load_record(folder.path(), "")->id, record.id);
  EXPECT_EQ(record_ids(folder.path()).size(), records_max);
}

TEST(RecordStore, TemporaryFilesOfKilledWritersAreRemoved) {
  const Folder folder;
  std::ofstream(folder.path() + "/.000000000001.a-old.json.AbCdEf") << "{";
  std::ofstream(folder.path() + "/.000000000002.z-now.json.AbCdEf") << "{";
  std::ofstream(folder.path() + "/notes.txt") << "mine";
  DecisionRecord record = Situation(1).record(1);
  for (std::size_t i = 0; i <= records_max; ++i) {
    record.id = "r-" + std::to_string(1000 + i);
    ASSERT_TRUE(store_record(folder.path(), record));
  }
  EXPECT_EQ(record_ids(folder.path()).size(), records_max) << "temporary files are not records";
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/.000000000001.a-old.json.AbCdEf"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/.000000000002.z-now.json.AbCdEf")) << "it may still be in use";
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/notes.txt"));
}

TEST(RecordStore, AnUnusableFolderIsAnError) {
  const DecisionRecord record = Situation(1).record(1);
  EXPECT_FALSE(store_record("/proc/berth-records", record));
  const Folder folder;
  ::chmod(folder.path().c_str(), 0777);
  EXPECT_FALSE(store_record(folder.path(), record)) << "other users can write there";
  EXPECT_TRUE(record_ids(folder.path()).empty());
}

TEST(RecordStore, DecisionIdsSortByTime) {
  Explanation explanation;
  const DecisionRecord first = make_record("pick", "", explanation, {}, {});
  DecisionRecord second = make_record("pick", "", explanation, {}, {});
  while (second.wall_time_us == first.wall_time_us) second = make_record("pick", "", explanation, {}, {});
  EXPECT_LT(first.id, second.id);
}

}  // namespace
}  // namespace berth::machine
