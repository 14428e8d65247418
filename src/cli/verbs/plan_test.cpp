#include "cli/verbs/plan.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <filesystem>
#include <functional>
#include <sstream>

#include "cli/text/terminal.hpp"
#include "fleet_format/plan_json.hpp"
#include "world/files.hpp"

namespace berth::cli {

using namespace format;
using namespace world;
namespace {

namespace fs = std::filesystem;

const std::string examples = std::string(BERTH_SOURCE_FOLDER) + "/examples/";
const std::string head = "[cluster]\nname = \"lab\"\n";
const std::string too_large = head + "[[deployment]]\nname = \"big\"\nmodel = \"llama\"\ngpus = 64\n";

struct PlanOutcome {
  int status = 0;
  std::string out, err;
};

class PlanCommand : public testing::Test {
 protected:
  PlanCommand() {
    std::string name = (fs::temp_directory_path() / "berth-plan-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~PlanCommand() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    EXPECT_TRUE(write_text(path(name), text));
    return path(name);
  }
  static std::string text(const std::string& path) { return read_text(path).value_or("no file"); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  static PlanOutcome call(const std::function<int()>& verb) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    PlanOutcome outcome;
    outcome.status = verb();
    outcome.out = testing::internal::GetCapturedStdout();
    outcome.err = testing::internal::GetCapturedStderr();
    return outcome;
  }
  static PlanOutcome plan(const PlanArguments& arguments) {
    return call([&] { return run_plan(arguments); });
  }
  PlanArguments example() const {
    PlanArguments arguments;
    arguments.project = examples + "project.toml";
    arguments.fleet = examples + "fleet.toml";
    return arguments;
  }
  static void expect_refused(const PlanOutcome& outcome, int status, const std::string& words) {
    EXPECT_EQ(outcome.status, status);
    EXPECT_EQ(outcome.out, "");
    EXPECT_TRUE(outcome.err.starts_with("berth: ")) << outcome.err;
    EXPECT_NE(outcome.err.find(words), std::string::npos) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }

  fs::path folder_;
};

TEST_F(PlanCommand, TheExampleProjectFitsTheExampleFleet) {
  const PlanOutcome outcome = plan(example());
  EXPECT_EQ(outcome.status, done) << outcome.out << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_NE(outcome.out.find("15 to start, 0 to change, 0 to stop, 0 unchanged, 0 pending."), std::string::npos)
      << outcome.out;
}

TEST_F(PlanCommand, TheDocumentedPlanIsWhatTheExamplePrints) {
  const std::string page = text(std::string(BERTH_SOURCE_FOLDER) + "/docs/guide/deployment.md");
  EXPECT_NE(page.find("```\n$ berth plan examples/project.toml --fleet examples/fleet.toml\n" + plan(example()).out +
                      "```\n"),
            std::string::npos)
      << plan(example()).out;
}

TEST_F(PlanCommand, TheDocumentedProjectIsValid) {
  const std::string page = text(std::string(BERTH_SOURCE_FOLDER) + "/docs/guide/deployment.md");
  const std::string mark = "<!-- a test reads this -->\n```toml\n";
  const std::size_t begin = page.find(mark);
  ASSERT_NE(begin, std::string::npos);
  const std::size_t end = page.find("```", begin + mark.size());
  const auto project = read_project(page.substr(begin + mark.size(), end - begin - mark.size()), "deployment.md");
  ASSERT_TRUE(project) << project.error().to_text();
  EXPECT_EQ(project->deployments.at(0).readiness->http, "/health");
}

// Every key that the file accepts has a row in the documentation.
TEST_F(PlanCommand, TheDocumentedKeysAreThoseOfTheFile) {
  const std::string page = text(std::string(BERTH_SOURCE_FOLDER) + "/docs/guide/deployment.md");
  const auto refused = read_project(head + "[[deployment]]\nzzzzzzzzzzzz = 1\n", "f");
  ASSERT_FALSE(refused);
  const std::string known = refused.error().advice;  // "use one of name, model, ..."
  std::istringstream keys(known.substr(std::string("use one of ").size()));
  std::size_t count = 0;
  for (std::string key; std::getline(keys, key, ','); ++count) {
    key.erase(0, key.find_first_not_of(' '));
    EXPECT_TRUE(page.find("`" + key + "`") != std::string::npos || page.find("`" + key + ".") != std::string::npos)
        << key;
  }
  EXPECT_GT(count, 30u) << known;
}

TEST_F(PlanCommand, TheDocumentedRuntimesAreThoseInferred) {
  // Rows of the table: | begins with `gpt-4`, `gpt-3.5` | `open_ai` |
  std::istringstream page(text(std::string(BERTH_SOURCE_FOLDER) + "/docs/guide/deployment.md"));
  std::size_t rows = 0;
  for (std::string line; std::getline(page, line);) {
    const bool begins = line.starts_with("| begins with"), ends = line.starts_with("| ends with");
    if (!begins && !ends && !line.starts_with("| contains")) continue;
    std::vector<std::string> words;
    for (std::size_t at = line.find('`'); at != std::string::npos;) {
      const std::size_t end = line.find('`', at + 1);
      words.push_back(line.substr(at + 1, end - at - 1));
      at = line.find('`', end + 1);
    }
    ASSERT_GE(words.size(), 2u) << line;
    for (std::size_t i = 0; i + 1 < words.size(); ++i, ++rows) {
      const std::string model = (begins ? "" : "x-") + words[i] + (ends ? "" : "-x");
      EXPECT_EQ(to_string(infer_runtime(model)), words.back()) << model;
    }
  }
  EXPECT_EQ(rows, 23u) << "the page has a word for each rule";
}

TEST_F(PlanCommand, AnUnchangedPlanIsEmpty) {
  PlanArguments arguments = example();
  arguments.output = path("plan.json");
  ASSERT_EQ(plan(arguments).status, done);
  EXPECT_EQ(files(), 1u) << "no temporary file is left";
  arguments.current = arguments.output;
  const PlanOutcome again = plan(arguments);
  EXPECT_EQ(again.status, done);
  EXPECT_EQ(again.out, "Nothing to do: 15 replicas are in place.\n");
}

TEST_F(PlanCommand, JsonIsOneValueAndNothingElse) {
  PlanArguments arguments = example();
  arguments.json = true;
  const PlanOutcome outcome = plan(arguments);
  const auto value = boost::json::parse(outcome.out);
  EXPECT_EQ(value.at("format").as_int64(), plan_format);
  EXPECT_EQ(value.at("cluster").as_string(), "lab");
  EXPECT_EQ(value.at("assignments").as_array().size(), 15u);
  EXPECT_EQ(value.at("actions").as_array().size(), 15u);
  EXPECT_TRUE(value.at("pending").as_array().empty());
}

TEST_F(PlanCommand, WhatDoesNotFitIsStatusThreeWithReasons) {
  PlanArguments arguments = example();
  arguments.project = write("big.toml", too_large);
  const PlanOutcome outcome = plan(arguments);
  EXPECT_EQ(outcome.status, does_not_fit);
  EXPECT_NE(outcome.out.find("! big/0  pending: no node has 64 GPUs; the nearest, gpu-2, has 8"), std::string::npos)
      << outcome.out;
  EXPECT_NE(outcome.err, "");
  arguments.json = true;
  const auto value = boost::json::parse(plan(arguments).out);
  const auto& pending = value.at("pending").at(0);
  EXPECT_EQ(pending.at("reason").as_string(), "not_enough_gpus");
  EXPECT_EQ(pending.at("gpus_requested").as_int64(), 64);
  EXPECT_EQ(pending.at("best_node").as_string(), "gpu-2");
}

TEST_F(PlanCommand, WrongInputIsStatusTwoWithItsPlace) {
  PlanArguments arguments = example();
  arguments.project = write("typo.toml", head + "[[deployment]]\nname = \"a\"\nmodel = \"m\"\nreplcas = 2\n");
  expect_refused(plan(arguments), wrong_input, "typo.toml:6:1: unknown key \"replcas\"");
  expect_refused(plan(arguments), wrong_input, "did you mean \"replicas\"?");
  arguments.project = path("none.toml");
  expect_refused(plan(arguments), wrong_input, "none.toml");
  arguments.project = examples + "project.toml";
  arguments.fleet = write("fleet.toml", "[[node]]\nnmae = \"x\"\n");
  expect_refused(plan(arguments), wrong_input, "fleet.toml:2:1");
  arguments.project = folder_.string();
  expect_refused(plan(arguments), environment_error, "directory");
}

TEST_F(PlanCommand, AFileThatIsNotAPlanIsRefused) {
  PlanArguments arguments = example();
  const auto refused = [&](const std::string& text, const std::string& words) {
    arguments.current = write("current.json", text);
    expect_refused(plan(arguments), wrong_input, words);
  };
  refused("", "current.json:1:1: this is not JSON");
  refused("{\n  \"format\": oops}", "current.json:2:13: this is not JSON");
  refused("{} {}", "not JSON");
  refused("[]", "not a plan");
  refused("{}", "has no \"format\"");
  refused("{\"format\": 2}", "newer version");
  refused("{\"format\": 1, \"cluster\": \"other\", \"assignments\": []}", "cluster \"other\"");
  refused("{\"format\": 1, \"cluster\": \"lab\", \"assignments\": {}}", "assignments is not an array");
  refused("{\"format\": 1, \"cluster\": \"lab\", \"assignments\": [{\"deployment\": 1}]}",
          "assignments[0].deployment is not text");
  refused("{\"format\": 1, \"cluster\": \"lab\", \"assignments\": [{\"deployment\": \"d\", \"replica\": -1}]}",
          "assignments[0].replica is not a whole number");
  arguments.current = path("none.json");
  expect_refused(plan(arguments), wrong_input, "none.json");
}

TEST_F(PlanCommand, ReadingAWrittenPlanGivesTheSame) {
  const Plan plan{{{DeploymentId("d"), 7, NodeId("n"), {DeviceId("a"), DeviceId("b")}, ~0ull, true},
                   {DeploymentId("\"e\n"), 0, NodeId("m"), {}, 0, false}},
                  {},
                  {}};
  const auto back = read_plan(plan_to_json(plan, "lab"), "plan.json", "lab");
  ASSERT_TRUE(back) << back.error().to_text();
  EXPECT_EQ(*back, plan.assignments);
}

TEST_F(PlanCommand, AFullDiskIsAnErrorAndLosesNothing) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full on this system";
  PlanArguments arguments = example();
  arguments.output = "/dev/full";
  expect_refused(plan(arguments), environment_error, "/dev/full");
  EXPECT_TRUE(fs::is_character_file("/dev/full")) << "a device file is written to, never replaced";
}

TEST_F(PlanCommand, AFileThatCannotBeReplacedStays) {
  PlanArguments arguments = example();
  arguments.output = path("none/plan.json");
  expect_refused(plan(arguments), wrong_input, "none/plan.json");
  EXPECT_TRUE(write_text(path("plan.json"), "before"));
  EXPECT_TRUE(write_text(path("plan.json"), "after"));
  EXPECT_EQ(text(path("plan.json")), "after");
  EXPECT_EQ(files(), 1u);
}

TEST_F(PlanCommand, InitWritesAnExampleThatFitsThisMachineAndNeverOverwrites) {
  const std::string file = path("berth.toml");
  const PlanOutcome first = call([&] { return run_init(file); });
  EXPECT_EQ(first.status, done) << first.err;
  EXPECT_EQ(call([&] { return run_validate(file); }).status, done);
  PlanArguments arguments;
  arguments.project = file;
  const PlanOutcome planned = plan(arguments);
  EXPECT_EQ(planned.status, done) << planned.out << planned.err;
  const std::string before = text(file);
  expect_refused(call([&] { return run_init(file); }), wrong_input, "already exists");
  EXPECT_EQ(text(file), before);
}

TEST_F(PlanCommand, TheExampleOfInitIsValidWithItsCommentsRemoved) {
  const std::string file = path("berth.toml");
  ASSERT_EQ(call([&] { return run_init(file); }).status, done);
  std::string all = text(file);
  for (std::size_t at = all.find("\n# "); at != std::string::npos; at = all.find("\n# ", at + 1)) {
    const std::size_t end = all.find('\n', at + 1);
    const std::string line = all.substr(at + 3, end - at - 3);
    if (line.starts_with("[") || line.find(" = ") < 30) all.erase(at + 1, 2);
  }
  const auto project = read_project(all, "berth.toml");
  ASSERT_TRUE(project) << project.error().to_text() << "\n" << all;
  EXPECT_EQ(project->deployments.size(), 3u);
  EXPECT_EQ(project->deployments[0].readiness->http, "/");
  EXPECT_TRUE(project->deployments[0].single) << all;
  EXPECT_EQ(project->deployments[1].rollout, Rollout{}) << all;
  EXPECT_EQ(project->deployments[1].readiness->http, "/health") << all;
}

TEST_F(PlanCommand, ValidateDistinguishesProjectsFromFleets) {
  EXPECT_NE(call([&] { return run_validate(examples + "project.toml"); }).out.find("valid project of 5 deployments"),
            std::string::npos);
  EXPECT_NE(call([&] { return run_validate(examples + "fleet.toml"); }).out.find("valid fleet of 4 nodes"),
            std::string::npos);
  const std::string empty = write("empty.toml", "");
  expect_refused(call([&] { return run_validate(empty); }), wrong_input, "no table [cluster]");
  const std::string newer =
      write("newer.toml", head + "[[deployment]]\nname = \"d\"\nmodel = \"m\"\nruntime = \"quantum_link\"\n");
  const PlanOutcome noted = call([&] { return run_validate(newer); });
  EXPECT_EQ(noted.status, done);
  EXPECT_NE(noted.err.find("quantum_link"), std::string::npos);
}

TEST_F(PlanCommand, FleetShowPrintsNodesAsATableOrAsJson) {
  const PlanOutcome table = call([&] { return run_fleet_show(examples + "fleet.toml", false); });
  EXPECT_EQ(table.status, done);
  EXPECT_NE(table.out.find("8 x NVIDIA H200 (131.3 GiB)"), std::string::npos) << table.out;
  const auto value = boost::json::parse(call([&] { return run_fleet_show(examples + "fleet.toml", true); }).out);
  EXPECT_EQ(value.at("nodes").as_array().size(), 4u);
  EXPECT_EQ(value.at("nodes").at(1).at("devices").as_array().size(), 8u);
  EXPECT_FALSE(value.at("nodes").at(3).as_object().contains("labels")) << "absent, not empty";
  expect_refused(call([&] { return run_fleet_show(path("none.toml"), true); }), wrong_input, "none.toml");
}

TEST_F(PlanCommand, APreferenceForAnUnknownNodeIsNoted) {
  PlanArguments arguments = example();
  arguments.project =
      write("p.toml", head + "[[egress_preference]]\nprovider = \"http\"\nkey = \"env:K\"\nnodes = [\"mars\"]\n");
  const PlanOutcome outcome = plan(arguments);
  EXPECT_EQ(outcome.status, done);
  EXPECT_NE(outcome.err.find("mars"), std::string::npos);
}

}  // namespace
}  // namespace berth::cli
