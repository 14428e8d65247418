#include "ledger/limits.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "berth/random.hpp"
#include "ledger/test_folder.hpp"
#include "world/test_random_cases.hpp"
#include "world/test_units.hpp"

namespace berth::ledger {
namespace {

using world::gib;

using Values = PerLimit<std::optional<std::uint64_t>>;
constexpr std::nullopt_t none = std::nullopt;

Values values_of(const UserLimits& limits) {
  Values values;
  for (std::size_t i = 0; i < limit_kinds; ++i) {
    if (limits.limits[i]) values[i] = limits.limits[i]->most;
  }
  return values;
}

LedgerEntry entry(std::uint64_t id, EntryKind kind, std::vector<Claim> claims, std::uint32_t user = 1000) {
  LedgerEntry made;
  made.reference = {1, id, user};
  made.user = user;
  made.kind = kind;
  made.claims = std::move(claims);
  return made;
}
Claim claim(const std::string& gpu, std::uint64_t bytes, bool exclusive = false) {
  return {DeviceId(gpu), gpu, bytes, 0, exclusive};
}

UserLimits limits(Values values) {
  LimitsFile file;
  file.users["anna"] = values;
  return limits_of(file, {1000, "anna", {}});
}

TEST(Limits, AreReadFromTheirSections) {
  const auto file = parse_limits(R"(
[default]
gpus = 4
memory = "160GiB"

[group.students]
gpus = 2
waiting = 20

[user.anna]
running = 3

[user.1234]
memory = "0B"
)");
  ASSERT_TRUE(file) << file.error().to_text();
  EXPECT_EQ(file->others, (Values{4, 160 * gib, {}, {}}));
  EXPECT_EQ(file->groups.at("students"), (Values{2, {}, {}, 20}));
  EXPECT_EQ(file->users.at("anna"), (Values{none, {}, 3, {}}));
  EXPECT_EQ(file->users.at("1234"), (Values{none, 0, {}, {}}));
}

TEST(Limits, AMistakeInTheFileIsNamedWithItsPlace) {
  const auto expect = [](const std::string& text, const std::string& place, const std::string& words) {
    const auto file = parse_limits(text, "limits.toml");
    ASSERT_FALSE(file) << text;
    EXPECT_EQ(file.error().code, ErrorCode::invalid_argument);
    EXPECT_TRUE(file.error().message.starts_with("limits.toml:" + place + ": ")) << file.error().message;
    EXPECT_NE(file.error().message.find(words), std::string::npos) << file.error().message;
    EXPECT_FALSE(file.error().advice.empty());
  };
  expect("[user.anna]\ngpu = 2", "2:1", "\"gpu\" is not a limit");
  expect("[users.anna]\ngpus = 2", "1:2", "\"users\" is not a section");
  expect("user = 2", "1:1", "\"user\" is not a section");
  expect("[user]\ngpus = 2", "2:1", "\"gpus\" is not a section");
  expect("[default]\ngpus = -1", "2:1", "\"gpus\" is not a whole number");
  expect("[default]\nrunning = \"3\"", "2:1", "\"running\" is not a whole number");
  expect("[default]\nmemory = 40", "2:1", "no unit");
  expect("[default]\nmemory = \"40\"", "2:1", "memory is not an amount");
  const Result<LimitsFile> broken = parse_limits("[default", "limits.toml");
  ASSERT_FALSE(broken);
  EXPECT_TRUE(broken.error().message.starts_with("limits.toml:1:9: the text is not valid TOML: "))
      << broken.error().message;
}

TEST(Limits, ARandomFileIsReadAsItWasWritten) {
  SeededRandom random(7);
  const auto section = [&](const std::string& title, std::string& text) {
    Values values;
    text += "[" + title + "]\n";
    for (std::size_t i = 0; i < limit_kinds; ++i) {
      if (random.below(2)) continue;
      values[i] = random.next() >> (1 + random.below(63));
      const std::string number = std::to_string(*values[i]);
      text +=
          std::string(to_string(static_cast<LimitKind>(i))) + " = " + (i == 1 ? "\"" + number + "B\"" : number) + "\n";
    }
    return values;
  };
  for (std::uint64_t round = 0; round < world::random_cases(500); ++round) {
    LimitsFile expected;
    std::string text;
    if (random.below(2)) expected.others = section("default", text);
    for (std::uint64_t i = random.below(4); i > 0; --i) {
      const std::string name = "u" + std::to_string(random.below(1000000)) + std::to_string(i);
      expected.users[name] = section("user." + name, text);
    }
    for (std::uint64_t i = random.below(4); i > 0; --i) {
      const std::string name = "a b\t" + std::to_string(random.below(1000000)) + std::to_string(i);
      expected.groups[name] = section("group.\"a b\\t" + name.substr(4) + "\"", text);
    }
    const auto file = parse_limits(text);
    ASSERT_TRUE(file) << file.error().to_text() << "\n" << text;
    EXPECT_EQ(file->others, expected.others);
    EXPECT_EQ(file->users, expected.users);
    EXPECT_EQ(file->groups, expected.groups);
  }
}

TEST(Limits, ADamagedFileIsAnErrorOrReadsAsWritten) {
  SeededRandom random(8);
  const std::string good = "[default]\ngpus = 4\nmemory = \"160GiB\"\n[user.anna]\nrunning = 3\nwaiting = 5\n";
  for (std::uint64_t round = 0; round < world::random_cases(3000); ++round) {
    std::string text = good;
    for (std::uint64_t i = 1 + random.below(3); i > 0; --i) {
      const std::size_t at = random.below(text.size());
      switch (random.below(3)) {
        case 0: text[at] = static_cast<char>(random.next()); break;
        case 1: text.erase(at, 1 + random.below(8)); break;
        default: text.insert(at, 1, "[]\"=.\n#'{}"[random.below(10)]);
      }
      if (text.empty()) break;
    }
    const auto file = parse_limits(text);
    if (file) continue;
    EXPECT_TRUE(file.error().message.starts_with(limits_path)) << file.error().message;
    EXPECT_EQ(file.error().message.find('\n'), std::string::npos);
  }
}

TEST(Limits, TheLowestValueOfTheUsersSectionsAppliesAndTheDefaultFillsTheRest) {
  LimitsFile file;
  file.users["anna"] = {8, {}, {}, {}};
  file.users["1000"] = {none, 50, {}, {}};
  file.groups["students"] = {2, 100, {}, {}};
  file.groups["100"] = {4, {}, 6, {}};
  file.others = {1, 10, 1, 7};
  EXPECT_EQ(values_of(limits_of(file, {1000, "anna", {"students", "100"}})), (Values{2, 50, 6, 7}));
  EXPECT_EQ(limits_of(file, {1000, "anna", {"students"}}).limits[0]->section, "[group.students]");
  EXPECT_EQ(values_of(limits_of(file, {1000, "anna", {}})), (Values{8, 50, 1, 7})) << "a section lifts a default";
  EXPECT_EQ(values_of(limits_of(file, {1001, "bert", {}})), (Values{1, 10, 1, 7}));
  EXPECT_FALSE(limits_of(file, {0, "root", {}}).any());
  EXPECT_TRUE(limits_of(file, {0, "root", {"100"}}).any());
}

TEST(Limits, AGpuCountsOnceAndTheProcessorDoesNot) {
  LedgerSnapshot snapshot;
  snapshot.entries = {entry(1, EntryKind::command, {claim("a", 10)}),
                      entry(2, EntryKind::command, {claim("a", 20)}),
                      entry(3, EntryKind::command, {claim("host", 40)}),
                      entry(4, EntryKind::command, {claim("b", 80)}, 1001),
                      entry(5, EntryKind::pool, {claim("c", 0), claim("d", 0)}),
                      entry(6, EntryKind::waiting, {claim("c", 5)})};
  snapshot.entries.push_back(entry(7, EntryKind::command, {claim("a", 5)}));
  snapshot.entries.back().within = snapshot.entries[0].reference;
  const Usage usage = usage_of(snapshot, 1000);
  EXPECT_EQ(usage.gpus, std::set<std::string>{"a"});
  EXPECT_EQ(usage.memory_bytes, 30U);
  EXPECT_EQ(usage.running, 3U) << "an open pool without a lease holds nothing";
  EXPECT_EQ(usage.waiting, 1U);
}

TEST(Limits, TheSentenceNamesTheLimitAndWhatTheUserHas) {
  LedgerSnapshot snapshot;
  snapshot.entries = {entry(1, EntryKind::command, {claim("a", 30 * gib)})};
  const auto text = [&](Values values, std::vector<Claim> claims) {
    const auto reached = limit_reached(limits(values), snapshot, entry(0, EntryKind::command, std::move(claims)));
    return reached ? reached->text : "";
  };
  EXPECT_EQ(
      text({1, {}, {}, {}}, {claim("b", 1)}),
      "anna may have 1 GPU at a time (gpus in [user.anna] of /etc/berth/limits.toml), has 1 GPU and asks for 1 GPU "
      "more");
  EXPECT_EQ(text({none, 40 * gib, {}, {}}, {claim("a", 20 * gib)}),
            "anna may have 40.0 GiB at a time (memory in [user.anna] of /etc/berth/limits.toml), has 30.0 GiB and asks "
            "for 20.0 GiB more");
  EXPECT_EQ(text({none, 40 * gib, {}, {}}, {claim("a", 50 * gib)}),
            "anna may have 40.0 GiB at a time (memory in [user.anna] of /etc/berth/limits.toml) and asks for 50.0 GiB");
  EXPECT_EQ(text({1, {}, {}, {}}, {claim("a", 1)}), "") << "on the GPU that anna has already";
  EXPECT_EQ(text({none, {}, 2, {}}, {claim("b", 1)}), "");
}

TEST(Limits, AWaitingRequestKeepsOnlyDevicesThatItsUserMayHave) {
  LedgerSnapshot snapshot;
  snapshot.entries = {entry(1, EntryKind::command, {claim("a", 30)})};
  const std::vector<Claim> claims{claim("a", 10), claim("b", 20), claim("host", 90)};
  const auto left = [&](Values values, std::size_t count = 1) {
    std::string names;
    for (const Claim& kept : claims_within(limits(values), snapshot, 1000, count, claims))
      names += kept.device.text() + " ";
    return names;
  };
  EXPECT_EQ(left({}), "a b host ");
  EXPECT_EQ(left({1, {}, {}, {}}), "a host ");
  EXPECT_EQ(left({2, {}, {}, {}}), "a b host ");
  EXPECT_EQ(left({2, {}, {}, {}}, 2), "a host ");
  EXPECT_EQ(left({none, 40, {}, {}}), "a host ");
  EXPECT_EQ(left({none, 40, {}, {}}, 2), "host ");
  EXPECT_EQ(left({none, {}, 1, {}}), "");
}

TEST(Limits, ALeaseMayShrinkUnderALimitThatWasLowered) {
  LedgerSnapshot snapshot;
  snapshot.entries = {entry(1, EntryKind::pool, {claim("a", 40), claim("b", 40)})};
  LedgerEntry wanted = snapshot.entries[0];
  wanted.claims[0].memory_bytes = 30;
  EXPECT_FALSE(limit_reached(limits({1, 10, 0, 0}), snapshot, wanted));
  wanted.claims[1].memory_bytes = 51;
  EXPECT_EQ(limit_reached(limits({1, 10, 0, 0}), snapshot, wanted)->kind, LimitKind::memory);
}

TEST(Limits, WhatTheyAllowNeverExceedsThemAndWhatTheyRefuseWould) {
  SeededRandom random(9);
  for (std::uint64_t round = 0; round < world::random_cases(300); ++round) {
    Values most;
    for (auto& value : most)
      if (random.below(3)) value = random.below(12);
    const UserLimits set = limits(most);
    LedgerSnapshot snapshot;
    for (std::uint64_t id = 1; id < 40; ++id) {
      std::vector<Claim> claims;
      for (std::uint64_t gpu = 0; gpu < 5; ++gpu)
        if (random.below(3) == 0)
          claims.push_back(claim(std::string(1, static_cast<char>('a' + gpu)), random.below(5)));
      const bool changes = !snapshot.entries.empty() && random.below(3) == 0;
      LedgerEntry wanted = changes ? snapshot.entries[random.below(snapshot.entries.size())]
                                   : entry(id, static_cast<EntryKind>(random.below(3)), {});
      wanted.claims = claims;
      LedgerSnapshot after = snapshot;
      std::erase_if(after.entries, [&](const LedgerEntry& other) { return other.reference == wanted.reference; });
      after.entries.push_back(wanted);
      const Usage now = usage_of(snapshot, 1000), then = usage_of(after, 1000);
      bool exceeds = false;
      for (std::size_t i = 0; i < limit_kinds; ++i) {
        const auto kind = static_cast<LimitKind>(i);
        exceeds = exceeds || (most[i] && then.amount(kind) > *most[i] && then.amount(kind) > now.amount(kind));
      }
      EXPECT_EQ(limit_reached(set, snapshot, wanted).has_value(), exceeds);
      if (!exceeds) snapshot = std::move(after);
      const Usage held = usage_of(snapshot, 1000);
      for (std::size_t i = 0; i < limit_kinds; ++i)
        EXPECT_TRUE(!most[i] || held.amount(static_cast<LimitKind>(i)) <= *most[i]);
    }
  }
}

TEST(Limits, WhatExceedsALimitByItselfIsKnownWithoutAChoiceOfDevices) {
  const auto exceeded = [](const Values& values, std::size_t count, const std::vector<Claim>& claims) {
    const auto limit = limit_exceeded_alone(limits(values), count, claims);
    EXPECT_TRUE(!limit || limit->never);
    return limit ? std::string(to_string(limit->kind)) : "";
  };
  const std::vector<Claim> four{claim("a", gib), claim("b", 4 * gib), claim("c", 2 * gib), claim("d", 8 * gib)};
  EXPECT_EQ(exceeded({2, none, none, none}, 2, four), "");
  EXPECT_EQ(exceeded({2, none, none, none}, 3, four), "gpus");
  EXPECT_EQ(exceeded({2, none, none, none}, 5, four), "") << "there are only four devices";
  EXPECT_EQ(exceeded({none, 3 * gib, none, none}, 2, four), "") << "a and c are enough";
  EXPECT_EQ(exceeded({none, 3 * gib - 1, none, none}, 2, four), "memory");
  EXPECT_EQ(exceeded({none, none, 0, none}, 1, four), "running");
  std::vector<Claim> slices{claim("a", gib), claim("a", gib), claim("b", gib)};
  EXPECT_EQ(exceeded({1, none, none, none}, 2, slices), "") << "two slices of one GPU";
  EXPECT_EQ(exceeded({1, none, none, none}, 3, slices), "gpus");
  slices.push_back(claim("host", 90 * gib));
  EXPECT_EQ(exceeded({1, 2 * gib, none, none}, 3, slices), "") << "the processor is not a GPU";
}

TEST(Limits, AFileThatOtherUsersCouldHaveWrittenDoesNotCount) {
  const TestFolder folder;
  const std::string path = folder.path / "limits.toml";
  EXPECT_TRUE(read_limits(path)->users.empty()) << "no file";
  std::ofstream(path) << "[user.anna]\ngpus = 1\n";
  ::chmod(path.c_str(), 0644);
  const auto read = read_limits(path);
  if (geteuid() != 0) {
    ASSERT_FALSE(read);
    EXPECT_NE(read.error().message.find("does not belong to root"), std::string::npos);
  } else {
    ASSERT_TRUE(read);
    EXPECT_EQ(read->users.size(), 1U);
    for (const mode_t mode : {0664U, 0646U}) {
      ::chmod(path.c_str(), mode);
      ASSERT_FALSE(read_limits(path)) << mode;
      EXPECT_EQ(read_limits(path).error().code, ErrorCode::unavailable);
    }
    ASSERT_EQ(::chown(path.c_str(), 1000, 0), 0);
    ::chmod(path.c_str(), 0644);
    EXPECT_FALSE(read_limits(path));
  }
  std::filesystem::create_symlink(path, folder.path / "link");
  EXPECT_NE(read_limits(folder.path / "link").error().message.find("symbolic link"), std::string::npos);
  EXPECT_FALSE(read_limits(folder.path));
}

}  // namespace
}  // namespace berth::ledger
