// What a deployment says about the command it runs: how it is read from TOML, and what is refused, at which place.
#include <gtest/gtest.h>

#include "deployment/test_nodes.hpp"

namespace berth::deployment {
namespace {

using namespace std::chrono_literals;

// The text that follows begins at line 7 of the file.
const std::string served = head + "[[deployment]]\nname = \"d\"\ncpu = true\ncommand = [\"serve\", \"{port}\"]\n";

TEST(WhatRuns, EveryKeyArrives) {
  const auto project = read_project(head + R"([[deployment]]
name = "d"
model = "m"
runtime = "process"
command = ["python3", "serve.py", "--port", "{port}"]
environment = { A = "b", EMPTY = "" }
secrets = { HF_TOKEN = "file:/etc/berth/hf-token", KEY = "env:KEY" }
user = "svc"
folder = "/srv/d"
stop_grace = "1m"
host_memory = "16G"
cpus = 2.5
single = true
stop_after = "10s"
replace_after = "1.5m"
ready_within = "20m"
unready_within = "never"
[deployment.readiness]
http = "/health"
every = "500ms"
timeout = "1s"
failures = 5
[deployment.liveness]
command = ["check", "{port}"]
[deployment.rollout]
surge = 0
unavailable = 2
[[deployment]]
name = "e"
cpu = true
cpus = 2
command = ["e"]
liveness = { tcp = true, port = 9000 }
)",
                                    "berth.toml");
  ASSERT_TRUE(project) << project.error().to_text();
  const DeploymentSpec& d = project->deployments.at(0);
  EXPECT_EQ(d.command, (std::vector<std::string>{"python3", "serve.py", "--port", "{port}"}));
  EXPECT_EQ(d.environment, (std::map<std::string, std::string>{{"A", "b"}, {"EMPTY", ""}}));
  EXPECT_EQ(d.secrets.at("HF_TOKEN").text(), "file:/etc/berth/hf-token");
  EXPECT_EQ(d.secrets.at("KEY").text(), "env:KEY");
  EXPECT_EQ(d.user, "svc");
  EXPECT_EQ(d.folder, "/srv/d");
  EXPECT_EQ(d.readiness, (Probe{"/health", false, {}, {}, 500ms, 1s, 5}));
  EXPECT_EQ(d.liveness, (Probe{{}, false, {"check", "{port}"}, {}, 2s, 2s, 3}));
  EXPECT_EQ(d.stop_grace, 60s);
  EXPECT_EQ(d.host_memory_bytes, 16 * gib);
  EXPECT_EQ(d.cpus, 2.5);
  EXPECT_EQ(d.rollout, (Rollout{0, 2}));
  EXPECT_TRUE(d.single);
  EXPECT_EQ(d.stop_after, 10s);
  EXPECT_EQ(d.replace_after, 90s);
  EXPECT_EQ(d.ready_within, 20min);
  EXPECT_EQ(d.unready_within, std::nullopt);
  const DeploymentSpec& e = project->deployments.at(1);
  EXPECT_EQ(e.model, "") << "a custom command needs no model";
  EXPECT_EQ(e.cpus, 2);
  EXPECT_EQ(e.liveness, (Probe{{}, true, {}, 9000, 2s, 2s, 3}));
}

TEST(WhatRuns, DefaultsAreThoseOfTheSpec) {
  const auto project = read_project(served, "berth.toml");
  ASSERT_TRUE(project) << project.error().to_text();
  DeploymentSpec spec;
  spec.name = DeploymentId("d");
  spec.cpu = true;
  spec.command = {"serve", "{port}"};
  EXPECT_EQ(project->deployments.at(0), spec);
}

TEST(WhatRuns, AFileWithAReadinessProbeEndsWhatStaysUnready) {
  const auto unready_within = [](const std::string& more) {
    const auto project = read_project(served + more, "berth.toml");
    EXPECT_TRUE(project) << project.error().to_text();
    return project->deployments.at(0).unready_within;
  };
  const std::string probe = "[deployment.readiness]\ntcp = true\n";
  EXPECT_EQ(unready_within(probe), 5min);
  EXPECT_EQ(unready_within("unready_within = \"90s\"\n" + probe), 90s);
  EXPECT_EQ(unready_within("unready_within = \"never\"\n" + probe), std::nullopt);
  EXPECT_EQ(unready_within(""), std::nullopt) << "without a probe there is no limit";
  EXPECT_EQ(project_error(served + "unready_within = \"5m\"\n"),
            "berth.toml:7:1: unready_within of deployment \"d\" is for a readiness probe, but there is none | add "
            "[deployment.readiness], or remove unready_within");
  EXPECT_EQ(project_error(served + "unready_within = \"0s\"\n" + probe),
            "berth.toml:7:1: unready_within of deployment \"d\" is not positive | give a length of time, such as "
            "\"5m\", or \"never\"");
}

TEST(WhatRuns, WrongTypesAndKeysAreErrorsAtTheirPlace) {
  EXPECT_EQ(project_error(served + "enviroment = { A = \"b\" }\n"),
            "berth.toml:7:1: unknown key \"enviroment\" in [[deployment]] | did you mean \"environment\"?");
  EXPECT_EQ(project_error(served + "stop_grace = 10\n"),
            "berth.toml:7:14: stop_grace in [[deployment]] is a whole number | it takes a length of time in quotes, "
            "such as \"90s\"");
  EXPECT_EQ(project_error(served + "stop_grace = \"10\"\n"),
            "berth.toml:7:1: stop_grace: \"10\" is a length of time without a unit | did you mean 10s?");
  EXPECT_EQ(project_error(served + "replace_after = \"soon\"\n"),
            "berth.toml:7:1: replace_after: \"soon\" is not a length of time | write it like 90s, 5m, 1h30m or 1d, at "
            "most 366d");
  EXPECT_EQ(project_error(served + "cpus = \"2\"\n"),
            "berth.toml:7:8: cpus in [[deployment]] is text | it takes a number, such as 2 or 0.5");
  EXPECT_EQ(project_error(served + "cpus = nan\n"),
            "berth.toml:7:8: cpus in [[deployment]] is a floating-point number | it takes a number, such as 2 or 0.5");
  EXPECT_EQ(project_error(served + "environment = { PORT = 8080 }\n"),
            "berth.toml:7:17: variable \"PORT\" is a whole number | variables are text in quotes");
  EXPECT_EQ(project_error(served + "host_memory = \"16\"\n"),
            "berth.toml:7:1: host_memory: \"16\" is an amount of memory without a unit | did you mean 16G?");
  EXPECT_EQ(project_error(served + "[deployment.readiness]\nhtp = \"/\"\n"),
            "berth.toml:8:1: unknown key \"htp\" in [deployment.readiness] | did you mean \"http\"?");
  EXPECT_EQ(project_error(served + "[deployment.readiness]\ntcp = true\nport = 65536\n"),
            "berth.toml:9:1: port is 65536 | give a number from 1 to 65535");
  EXPECT_EQ(project_error(served + "[deployment.rollout]\nsurge = -1\n"),
            "berth.toml:8:1: surge is -1 | give a number from 0 to 10000");
  EXPECT_EQ(project_error(head + "[[deployment]]\nname = \"d\"\ncommand = \"serve\"\n"),
            "berth.toml:5:11: command in [[deployment]] is text | it takes a list of text, such as [\"a\", \"b\"]");
}

TEST(WhatRuns, AnUnknownPlaceholderIsNamedWithTheNearestOne) {
  const std::string start = head + "[[deployment]]\nname = \"d\"\ncpu = true\n";
  EXPECT_EQ(project_error(start + "command = [\"serve\", \"{prt}\"]\n"),
            "berth.toml:6:1: the placeholder {prt} in the command of deployment \"d\" is not known | did you mean "
            "{port}? Write {{ for a literal brace");
  EXPECT_EQ(project_error(start + "command = [\"awk\", \"{something}\"]\n"),
            "berth.toml:6:1: the placeholder {something} in the command of deployment \"d\" is not known | use one of "
            "{port}, {socket}, {address}, {gpus}, {memory_bytes}, {memory_fraction}, {name}, {replica}; write {{ for a "
            "literal brace");
  EXPECT_EQ(project_error(start + "command = [\"awk\", \"{{something}\", \"${HOME}\"]\n"), "no error");
  EXPECT_EQ(project_error(start + "command = [\"a\"]\nenvironment = { A = \"{name}\", B = \"{prt}\" }\n"),
            "berth.toml:7:31: the placeholder {prt} in B in the environment of deployment \"d\" is not known | did you "
            "mean {port}? Write {{ for a literal brace");
  EXPECT_EQ(project_error(start + "command = [\"\"]\n"),
            "berth.toml:6:1: the command of deployment \"d\" begins with an empty word | name a program first");
  EXPECT_EQ(project_error(start + "command = [\"a\", \"b\\u0000c\"]\n"),
            "berth.toml:6:1: an argument in the command of deployment \"d\" contains a NUL byte | remove it");
}

TEST(WhatRuns, WithoutAModelItSaysWhetherItNeedsGpus) {
  const std::string start = head + "[[deployment]]\nname = \"d\"\n";
  EXPECT_EQ(project_error(start + "command = [\"a\"]\n"),
            "berth.toml:3:1: deployment \"d\" does not specify whether it needs GPUs | add gpus = 1 or cpu = true");
  EXPECT_EQ(project_error(start + "command = [\"a\"]\nruntime = \"process\"\n"), "no error");
  EXPECT_EQ(project_error(start + "command = [\"a\"]\ngpus = 1\n"), "no error");
  EXPECT_EQ(project_error(start + "command = [\"a\"]\nmodel = \"qwen\"\n"), "no error");
  for (const char* neither : {"", "command = []\ncpu = true\n"})
    EXPECT_EQ(project_error(start + neither),
              "berth.toml:3:1: deployment \"d\" has neither a model nor a command | add model = \"...\", or command = "
              "[\"...\"] for a program of your own");
}

TEST(WhatRuns, AProbeAsksInExactlyOneWay) {
  const std::string probe = served + "[deployment.readiness]\n";
  EXPECT_EQ(
      project_error(probe),
      "berth.toml:7:13: the readiness probe of deployment \"d\" has none of http, tcp and command | add one of http = "
      "\"/health\", tcp = true, command = [...]");
  EXPECT_EQ(project_error(probe + "tcp = true\nhttp = \"/\"\n"),
            "berth.toml:7:13: the readiness probe of deployment \"d\" has more than one of http, tcp and command | "
            "keep one of http, tcp and "
            "command");
  EXPECT_EQ(project_error(probe + "tcp = false\n").find("berth.toml:7:13: the readiness probe"), 0u);
  EXPECT_EQ(project_error(probe + "http = \"/health?deep=1\"\n"), "no error");
  for (const char* path : {"health", "http://x/", "/a b", "/a\\r\\nHost: x", "/\\u00e4"})
    EXPECT_EQ(project_error(probe + "http = \"" + path + "\"\n").find("berth.toml:8:1: the readiness probe of "), 0u)
        << path;
  EXPECT_EQ(project_error(probe + "command = [\"check\", \"{prt}\"]\n"),
            "berth.toml:8:1: the placeholder {prt} in the readiness.command of deployment \"d\" is not known | did you "
            "mean {port}? Write {{ for a literal brace");
  EXPECT_EQ(project_error(probe + "command = [\"check\"]\nport = 80\n"),
            "berth.toml:9:1: the readiness probe of deployment \"d\" runs a command and has a port | remove port; "
            "{port} can be an argument");
  EXPECT_EQ(
      project_error(probe + "tcp = true\ntimeout = \"0s\"\n"),
      "berth.toml:9:1: the readiness probe of deployment \"d\" has a timeout below 1 ms | use a longer one, such as "
      "timeout = \"2s\"");
  EXPECT_EQ(
      project_error(probe + "tcp = true\nevery = \"0.1ms\"\n"),
      "berth.toml:9:1: the readiness probe of deployment \"d\" has an interval (every) below 1 ms | use a longer one, "
      "such as every = \"2s\"");
  EXPECT_EQ(project_error(probe + "tcp = true\nfailures = 0\n"),
            "berth.toml:9:1: failures is 0 | give a number from 1 to 1000000");
  EXPECT_EQ(project_error(served + "liveness = { tcp = true, http = \"/\" }\n").find("berth.toml:7:1: the liveness"),
            0u);
}

TEST(WhatRuns, AProbeNeedsAPortThatTheCommandKnows) {
  const std::string fixed = head + "[[deployment]]\nname = \"d\"\ncpu = true\ncommand = [\"serve\"]\n";
  EXPECT_EQ(project_error(fixed + "readiness = { tcp = true }\n"),
            "berth.toml:7:1: the readiness probe of deployment \"d\" uses {port} or {socket}, but neither is in the "
            "command or the environment | give one of them to the command, or give the probe its own port");
  EXPECT_EQ(project_error(fixed + "environment = { AT = \"{socket}\" }\nreadiness = { http = \"/\" }\n"), "no error");
  EXPECT_EQ(project_error(fixed + "readiness = { tcp = true, port = 80 }\n"), "no error");
  EXPECT_EQ(project_error(fixed + "environment = { PORT = \"{port}\" }\nreadiness = { tcp = true }\n"), "no error");
  EXPECT_EQ(project_error(fixed + "readiness = { command = [\"check\"] }\n"), "no error");
}

TEST(WhatRuns, OneThatIsReachedDirectlyIsToldWhereToListen) {
  const std::string start = head + "[[deployment]]\nname = \"d\"\ncpu = true\nserving = { reach = \"direct\" }\n";
  const std::string error =
      "berth.toml:6:13: reach = \"direct\" of deployment \"d\" needs {address} and {port} in its command or its "
      "environment | let the command listen on {address}, such as --host {address} --port {port}, or remove reach";
  EXPECT_EQ(project_error(start + "command = [\"serve\", \"{port}\"]\n"), error);
  EXPECT_EQ(project_error(start + "command = [\"serve\", \"{address}\", \"{socket}\"]\n"), error);
  EXPECT_EQ(project_error(start + "command = [\"serve\", \"{address}:{port}\"]\n"), "no error");
  EXPECT_EQ(project_error(start + "command = [\"serve\", \"{port}\"]\nenvironment = { HOST = \"{address}\" }\n"),
            "no error");
  EXPECT_EQ(project_error(served + "serving = { reach = \"relay\" }\n"), "no error");
}

TEST(WhatRuns, VariablesAreValidAndNotThoseOfBerth) {
  EXPECT_EQ(project_error(served + "environment = { \"A-B\" = \"c\" }\n"),
            "berth.toml:7:17: \"A-B\" in environment of deployment \"d\" is not a variable name | use letters, "
            "digits and '_', starting with a letter or '_'");
  EXPECT_EQ(project_error(served + "[deployment.environment]\nOK = \"1\"\nBERTH_LEASE = \"1\"\n"),
            "berth.toml:9:1: BERTH_LEASE in environment of deployment \"d\" is set by berth itself | remove it");
  EXPECT_EQ(project_error(served + "secrets = { CUDA_VISIBLE_DEVICES = \"env:X\" }\n"),
            "berth.toml:7:13: CUDA_VISIBLE_DEVICES in secrets of deployment \"d\" is set by berth itself | remove it");
  EXPECT_NE(project_error(served + "environment = { 1A = \"c\" }\n"), "no error");
  EXPECT_NE(project_error(served + "environment = { \"\" = \"c\" }\n"), "no error");
  EXPECT_EQ(project_error(served + "environment = { A = \"x\\u0000\" }\n"),
            "berth.toml:7:17: the value of A of deployment \"d\" contains a NUL byte | remove it");
  EXPECT_EQ(project_error(served + "environment = { A = \"x\" }\nsecrets = { A = \"env:A\" }\n"),
            "berth.toml:8:13: A of deployment \"d\" is in environment and in secrets | keep one of them");
}

TEST(WhatRuns, ASecretItselfIsRefusedAtItsPlaceAndNotRepeated) {
  const std::string error = project_error(served + "secrets = { A = \"env:A\", B = \"sk-abcdef123456\" }\n");
  EXPECT_EQ(error.find("berth.toml:7:26: this looks like the key itself"), 0u) << error;
  EXPECT_EQ(error.find("abcdef"), std::string::npos);
  const std::string plain = project_error(served + "secrets = { A = \"hunter2\" }\n");
  EXPECT_EQ(plain.find("berth.toml:7:13: a key must be a reference to its location"), 0u) << plain;
  EXPECT_EQ(plain.find("hunter2"), std::string::npos);
  EXPECT_EQ(project_error(served + "secrets = { A = \"file:token\" }\n"),
            "berth.toml:7:13: the file of A of deployment \"d\" is not an absolute path | begin it with /");
}

TEST(WhatRuns, UserFolderAndLimitsAreChecked) {
  EXPECT_EQ(project_error(served + "folder = \"srv\"\n"),
            "berth.toml:7:1: the folder \"srv\" of deployment \"d\" is not an absolute path | begin it with /");
  EXPECT_EQ(project_error(served + "user = \"a b\"\n"),
            "berth.toml:7:1: the user \"a b\" of deployment \"d\" is not a user name | give the name of a user");
  EXPECT_EQ(project_error(served + "cpus = 0\n"),
            "berth.toml:7:1: cpus of deployment \"d\" must be between 0.001 and 1000000 | leave it out for no limit");
  EXPECT_NE(project_error(served + "cpus = -1.5\n"), "no error");
  EXPECT_EQ(project_error(served + "host_memory = \"0G\"\n"),
            "berth.toml:7:1: host_memory of deployment \"d\" is 0 | leave it out for no limit");
  EXPECT_EQ(project_error(served + "rollout = { surge = 0, unavailable = 0 }\n"),
            "berth.toml:7:1: a rollout of deployment \"d\" could never begin: surge and unavailable are both 0 | set "
            "one of them to at least 1");
  EXPECT_EQ(project_error(served + "ready_within = \"0s\"\n"),
            "berth.toml:7:1: ready_within of deployment \"d\" is not positive | give a length of time, such as "
            "\"10m\"");
  EXPECT_EQ(project_error(served + "stop_grace = \"0s\"\n"), "no error") << "the replica is killed at once";
}

// Shorter times used to be accepted; they were silently lengthened or restarted healthy replicas.
TEST(WhatRuns, TimesThatReportsEveryTwoSecondsCannotKeepAreRefused) {
  for (const char* value : {"0s", "1s", "5999ms"})
    EXPECT_NE(project_error(served + "replace_after = \"" + value + "\"\n"), "no error") << value;
  EXPECT_EQ(project_error(served + "replace_after = \"5s\"\n"),
            "berth.toml:7:1: replace_after of deployment \"d\" is 5 s, which is too short, because nodes report "
            "only every 2 s | make it at least 6 s");
  EXPECT_EQ(project_error(served + "replace_after = \"6s\"\n"), "no error");
  const std::string single = served + "single = true\n";
  EXPECT_EQ(project_error(single + "stop_after = \"3s\"\n"),
            "berth.toml:8:1: stop_after of deployment \"d\" is 3 s, which is too short, because nodes report only "
            "every 2 s | make it at least 5 s");
  EXPECT_EQ(project_error(single + "stop_after = \"5s\"\nreplace_after = \"7s\"\n"), "no error");
  EXPECT_EQ(project_error(served + "stop_after = \"1s\"\n"), "no error") << "no effect unless it is single";
}

TEST(WhatRuns, ASingleReplicaStopsWellBeforeItIsReplaced) {
  EXPECT_EQ(project_error(served + "single = true\nstop_after = \"29s\"\n"),
            "berth.toml:8:1: a single replica of deployment \"d\" could run twice: it is replaced after 30 s and stops "
            "itself after 29 s | make stop_after at least 2 s shorter than replace_after");
  EXPECT_EQ(project_error(served + "single = true\nstop_after = \"28s\"\n"), "no error");
  EXPECT_EQ(project_error(served + "single = true\nreplicas = 3\n"), "no error") << "each index is single";
  EXPECT_EQ(project_error(served + "stop_after = \"29s\"\n"), "no error") << "no effect unless it is single";
  EXPECT_EQ(project_error(served + "single = true\nreplace_after = \"10s\"\n").find("berth.toml:3:1: a single"), 0u)
      << "there is no line of stop_after to show";
}

TEST(WhatRuns, WhatIsForACommandNeedsOne) {
  const std::string none = head + "[[deployment]]\nname = \"d\"\nmodel = \"qwen\"\n";
  EXPECT_EQ(project_error(none + "environment = { A = \"b\" }\n"),
            "berth.toml:6:1: environment of deployment \"d\" is for a command, but there is none | add command = "
            "[\"...\"], or remove environment");
  for (const char* line : {"secrets = { A = \"env:A\" }", "user = \"u\"", "folder = \"/f\"",
                           "readiness = { tcp = true }", "liveness = { tcp = true }"})
    EXPECT_NE(project_error(none + line + "\n").find("is for a command, but there is none"), std::string::npos) << line;
}

TEST(WhatRuns, AFaultOfALaterDeploymentIsPlacedThere) {
  EXPECT_EQ(project_error(served + "[[deployment]]\nname = \"e\"\ncpu = true\ncommand = [\"e\"]\nfolder = \"x\"\n"),
            "berth.toml:11:1: the folder \"x\" of deployment \"e\" is not an absolute path | begin it with /");
}

TEST(WhatRuns, ARevisionIsSetByAllButTheReplicas) {
  const DeploymentSpec a = gpu_spec("d", 1);
  DeploymentSpec b = a;
  EXPECT_TRUE(same_but_replicas(a, b));
  b.replicas = 7;
  EXPECT_TRUE(same_but_replicas(a, b));
  b.command = {"x"};
  EXPECT_FALSE(same_but_replicas(a, b));
  b = a;
  b.readiness = Probe{};
  EXPECT_FALSE(same_but_replicas(a, b));
}

TEST(WhatRuns, AProjectIsValidatedAsAWhole) {
  Project project;
  project.deployments = {gpu_spec("a", 1), gpu_spec("a", 1)};
  EXPECT_EQ(validate(project).error().message, "two deployments are named \"a\"");
  project.deployments = {gpu_spec("a", 1), gpu_spec("b", 1)};
  EXPECT_TRUE(validate(project));
  project.deployments[0].serving = {32, OnCapacityExhausted::fallback, DeploymentId("c")};
  EXPECT_EQ(validate(project).error().message, "deployment \"a\" falls back to \"c\", which is not in this project");
}

}  // namespace
}  // namespace berth::deployment
