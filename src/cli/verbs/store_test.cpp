#include <gtest/gtest.h>
#ifdef BERTH_HAS_SQLITE
#include "store/store.hpp"

#include <filesystem>

#include "cli/test_server.hpp"
#include "world/test_folder.hpp"

namespace berth::cli {

using namespace world;

void add_store(const Verb& command);

namespace {

class StoreVerb : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path / name).native(); }
  std::string kind(const std::string& name) const { return "sqlite:" + path(name); }
  Outcome run(std::vector<std::string> words) const {
    words.insert(words.begin(), "store");
    return run_words(std::move(words), add_store);
  }
  // A store as a server leaves it.
  void make_store(const std::string& name) const {
    const auto store = store::Store::open(store::open_engine(kind(name)).value()).value();
    ASSERT_TRUE(store->lead("server-1", std::chrono::hours(1)));
    store::Change change = store::change_of(store->load().value());
    change.cluster = "lab";
    ASSERT_TRUE(store->commit(change).value());
  }
  std::string cluster(const std::string& name) const {
    return store::Store::open(store::open_engine(kind(name)).value()).value()->load().value().desired.cluster;
  }
  world::TestFolder folder_;
};

TEST_F(StoreVerb, BacksUpRestoresAndCopies) {
  make_store("a.db");
  const Outcome saved = run({"backup", path("file"), "--store", kind("a.db")});
  EXPECT_EQ(saved.status, done) << saved.err;
  EXPECT_EQ(saved.out, kind("a.db") + " is saved in " + path("file") + "\n");
  const Outcome known = run({"backup", path("second"), "--store", kind("a.db"), "--json"});
  EXPECT_EQ(known.out, R"({"store":")" + kind("a.db") + R"(","file":")" + path("second") + "\"}\n");
  EXPECT_EQ(run({"restore", path("file"), "--store", kind("b.db")}).status, done);
  EXPECT_EQ(cluster("b.db"), "lab");
  EXPECT_EQ(run({"copy", kind("a.db"), kind("c.db")}).status, done);
  EXPECT_EQ(cluster("c.db"), "lab");
  const Outcome refused = run({"restore", path("file"), "--store", kind("b.db")});
  EXPECT_NE(refused.status, done);
  EXPECT_EQ(refused.err,
            "berth: " + kind("b.db") +
                " is not empty; name an empty or new store, or replace the contents of this one with --replace\n");
  EXPECT_EQ(run({"restore", path("file"), "--store", kind("b.db"), "--replace"}).status, done);
}

TEST_F(StoreVerb, AnAdvanceThatWasInterruptedIsCompletedByTheNext) {
  make_store("a.db");
  // The state after the command was killed: only the backup has the content of the store.
  const std::string file = path("a.db") + ".before-advance";
  ASSERT_EQ(run({"backup", file, "--store", kind("a.db")}).status, 0);
  {
    const auto engine = store::open_engine(kind("a.db")).value();
    std::vector<store::Write> writes{{"meta/restoring", "{}"}};
    const store::Listing listing = engine->list("").value();
    for (const store::Entry& entry : listing.entries) writes.push_back({entry.key, std::nullopt});
    ASSERT_TRUE(engine->commit({{}, writes}));
  }
  const Outcome advanced = run({"advance", "--store", kind("a.db")});
  EXPECT_EQ(advanced.status, 0) << advanced.err;
  EXPECT_EQ(cluster("a.db"), "lab");
  EXPECT_FALSE(std::filesystem::exists(file));
  // A command that was killed before it changed anything leaves an old backup, which must not be used.
  make_store("b.db");
  ASSERT_EQ(run({"backup", path("a.db") + ".before-advance", "--store", kind("b.db")}).status, 0);
  const Outcome again = run({"advance", "--store", kind("a.db")});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(StoreVerb, AWrongPathMakesNoStore) {
  EXPECT_NE(run({"backup", path("file"), "--store", kind("none.db")}).status, done);
  EXPECT_NE(run({"copy", kind("none.db"), kind("c.db")}).status, done);
  EXPECT_NE(run({"backup", path("file"), "--store", "memory"}).status, done) << "a new store in memory is empty";
  EXPECT_FALSE(std::filesystem::exists(path("none.db")));
  EXPECT_FALSE(std::filesystem::exists(path("c.db")));
  EXPECT_FALSE(std::filesystem::exists(path("file")));
}

}  // namespace
}  // namespace berth::cli
#else
TEST(StoreVerb, NeedsSqlite) { GTEST_SKIP() << "SQLite is not installed"; }
#endif
