#include "store/backup.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "store/memory_engine.hpp"
#include "store/records.hpp"
#include "store/schema.hpp"
#include "store/store.hpp"
#include "store/test_engines.hpp"
#include "store/test_failing_engine.hpp"
#include "store/test_fleet_records.hpp"
#include "world/files.hpp"

namespace berth::store {
namespace {

using namespace std::chrono_literals;

std::string outcome(const Result<void>& result) {
  return result ? "done" : std::string(to_string(result.error().code));
}

// From each engine to each engine.
class Backup : public testing::TestWithParam<std::tuple<EngineKind, EngineKind>> {
 protected:
  Backup()
      : from_(std::get<0>(GetParam()).open(made(source_.path / "from")).value()),
        to_(std::get<1>(GetParam()).open(made(source_.path / "to")).value()) {}
  static std::string made(const std::filesystem::path& folder) {
    std::filesystem::create_directory(folder);
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all);
    return folder.native();
  }
  std::string file() const { return (source_.path / "berth.backup").native(); }

  // More than one transaction.
  void fill_source() {
    const auto store = Store::open(from_).value();
    ASSERT_TRUE(store->lead("server-1", 1h));
    Change change = change_of(store->load().value());
    change.cluster = "lab \"quoted\" \xc3\xa4\n";
    for (int i = 0; i < 150; ++i) {
      const std::string name = "d" + std::to_string(i);
      change.deployments.emplace(name, wanted(name));
      change.nodes.emplace("n" + std::to_string(i), node_record("n" + std::to_string(i)));
      change.events.push_back(event(name));
    }
    change.assignments[NodeId("n1")].assigned = {assigned("n1", "d1", 0, 1)};
    change.generations = {1, 2};
    change.credentials = {{"t1", credential("t1")}};
    ASSERT_TRUE(store->commit(change).value());
    store->give_up();
  }
  static State without_versions(State state) {
    for (auto& [node, list] : state.assignments) list.version = 0;
    state.change_number = 0;
    return state;
  }

  TestFolder source_;
  std::shared_ptr<Engine> from_, to_;
};
INSTANTIATE_TEST_SUITE_P(Every, Backup,
                         testing::Combine(testing::ValuesIn(every_engine()), testing::ValuesIn(every_engine())),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + "_to_" + std::get<1>(info.param).name;
                         });

TEST_P(Backup, BringsEverythingBackAndLeapsAhead) {
  fill_source();
  ASSERT_EQ(outcome(backup(*from_, file())), "done");
  struct stat status{};
  ASSERT_EQ(::stat(file().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  const Result<void> restored = restore(*to_, file());
  ASSERT_TRUE(restored) << restored.error().to_text();
  State expected = without_versions(Store::open(from_).value()->load().value());
  expected.epoch += restore_leap;
  expected.next_generation += restore_leap;
  expected.desired.version += restore_leap;
  const std::uint64_t newest = expected.last_event + restore_leap;
  expected.last_event = newest + 1;
  const auto store = Store::open(to_).value();
  EXPECT_EQ(without_versions(store->load().value()), expected);
  const std::vector<fleet::Event> events = store->events(newest - 150, 1000).value();
  ASSERT_EQ(events.size(), 151U) << "an id that was used after the backup is not used again";
  EXPECT_EQ(store->events(0, 1000).value().size(), 151U);
  EXPECT_TRUE(events.back().text.starts_with("the store was restored from the backup of 20")) << events.back().text;
  EXPECT_EQ(store->actions(10).value().back().id, newest + 1) << "it is the action of a user";
  EXPECT_EQ(store->lead("server-2", 1h).value(), expected.epoch + 1);
  Change change = change_of(store->load().value());
  change.deployments = {{DeploymentId("d0"), std::nullopt}};
  change.events = {event("after")};
  EXPECT_TRUE(store->commit(change).value());
  EXPECT_EQ(store->load().value().desired.deployments.size(), 149U);
  EXPECT_EQ(store->events(newest + 1, 10).value().at(0).text, "after");
}

TEST_P(Backup, DoesNotReplaceAFile) {
  fill_source();
  ASSERT_TRUE(world::write_text(file(), "my notes"));
  ASSERT_EQ(::chmod(file().c_str(), 0644), 0);
  EXPECT_EQ(outcome(backup(*from_, file())), "already_exists");
  EXPECT_EQ(world::read_text(file()).value(), "my notes");
  struct stat status{};
  ASSERT_EQ(::stat(file().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0644U);
}

TEST_P(Backup, MayBeMadeWhileAServerLeads) {
  fill_source();
  ASSERT_TRUE(from_->hold("server-1", 1h));
  EXPECT_EQ(outcome(backup(*from_, file())), "done");
}

TEST_P(Backup, AStoreInUseOrNotEmptyIsNotOverwritten) {
  fill_source();
  ASSERT_EQ(outcome(backup(*from_, file())), "done");
  const auto store = Store::open(to_).value();
  EXPECT_EQ(outcome(restore(*to_, file())), "done") << "the store was opened, but never used";
  EXPECT_EQ(outcome(restore(*to_, file())), "already_exists");
  ASSERT_TRUE(to_->hold("server-1", 1h));
  EXPECT_EQ(outcome(restore(*to_, file(), IfNotEmpty::replace)), "unavailable");
  EXPECT_EQ(outcome(copy(*from_, *to_, IfNotEmpty::replace)), "unavailable");
  to_->release("server-1");
  ASSERT_TRUE(to_->commit({{}, {{"state/node/stray", "x"}}}).value());
  EXPECT_EQ(outcome(restore(*to_, file(), IfNotEmpty::replace)), "done");
  EXPECT_TRUE(to_->list("state/node/stray").value().entries.empty()) << "the content is replaced, not merged";
}

TEST_P(Backup, ACopyIsTheSameStore) {
  fill_source();
  ASSERT_EQ(outcome(copy(*from_, *to_)), "done");
  EXPECT_EQ(without_versions(Store::open(to_).value()->load().value()),
            without_versions(Store::open(from_).value()->load().value()));
  EXPECT_EQ(outcome(copy(*from_, *to_)), "already_exists");
  EXPECT_EQ(outcome(copy(*make_memory_engine(), *to_, IfNotEmpty::replace)), "io") << "an empty store cannot be copied";
  EXPECT_FALSE(to_->list("state/").value().entries.empty());
}

TEST_P(Backup, AnInterruptedRestoreIsNoticedAndCompleted) {
  fill_source();
  ASSERT_EQ(outcome(backup(*from_, file())), "done");
  const auto engine = std::make_shared<FailingEngine>(to_);
  int failures = 0;
  for (;; ++failures) {
    engine->fail_after(failures, FailingEngine::Failure::lost);
    const Result<void> restored = restore(*engine, file(), IfNotEmpty::replace);
    engine->recover();
    if (restored) break;
    if (failures == 0) continue;  // nothing was touched
    const auto store = Store::open(to_);
    ASSERT_FALSE(store) << failures;
    EXPECT_NE(store.error().message.find("was not completed"), std::string::npos) << store.error().message;
    EXPECT_EQ(outcome(restore(*to_, file())), "done") << "the restore can be repeated without replace";
  }
  EXPECT_GT(failures, 3);
  EXPECT_TRUE(Store::open(to_));
}

class BackupFile : public testing::Test {
 protected:
  BackupFile() {
    const auto engine = make_memory_engine();
    const auto store = Store::open(engine).value();
    EXPECT_TRUE(store->lead("server-1", 1h));
    Change change = change_of(store->load().value());
    change.nodes = {{NodeId("n"), node_record("n")}};
    EXPECT_TRUE(store->commit(change).value());
    EXPECT_TRUE(backup(*engine, path()));
    text_ = world::read_text(path()).value();
  }
  std::string path() const { return (folder_.path / "file").native(); }
  // Checks that a file with this text is refused and the store unchanged; returns the error.
  Error refusal_of(const std::string& text) {
    std::filesystem::remove(path());  // some file systems wait for the disk when a file is emptied
    std::ofstream(path(), std::ios::binary) << text;
    const auto engine = make_memory_engine();
    const Result<void> restored = restore(*engine, path());
    EXPECT_EQ(engine->list("").value().change_number, 0U);
    return restored ? Error{ErrorCode::internal, "it was restored"} : restored.error();
  }
  TestFolder folder_;
  std::string text_;
};

TEST_F(BackupFile, IsRefusedWhereverItWasTruncated) {
  for (std::size_t size = 0; size < text_.size(); ++size)
    ASSERT_EQ(refusal_of(text_.substr(0, size)).code, ErrorCode::invalid_argument) << size;
}

TEST_F(BackupFile, IsRefusedWhereverItWasEdited) {
  for (std::size_t at = 0; at < text_.size(); ++at) {
    std::string edited = text_;
    edited[at] = edited[at] == 'x' ? 'y' : 'x';
    const Error refusal = refusal_of(edited);
    ASSERT_TRUE(refusal.code == ErrorCode::invalid_argument || refusal.code == ErrorCode::not_supported)
        << at << ": " << refusal.to_text();
  }
  EXPECT_EQ(refusal_of(text_ + text_).code, ErrorCode::invalid_argument);
  EXPECT_EQ(refusal_of("not a backup\n").code, ErrorCode::invalid_argument);
  EXPECT_EQ(restore(*make_memory_engine(), path() + ".none").error().code, ErrorCode::not_found);
}

TEST_F(BackupFile, OfANewerVersionIsRefusedByName) {
  std::string newer = text_;
  const std::string number = "\"store\":" + std::to_string(schema_number);
  newer.replace(newer.find(number), number.size(), "\"store\":7");
  newer.replace(newer.find(this_version()), this_version().size(), "9.0.0");
  const Error refusal = refusal_of(newer);
  EXPECT_EQ(refusal.code, ErrorCode::not_supported);
  EXPECT_NE(refusal.message.find("berth 9.0.0"), std::string::npos) << refusal.message;
}

}  // namespace
}  // namespace berth::store
