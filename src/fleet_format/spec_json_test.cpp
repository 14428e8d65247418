#include "fleet_format/spec_json.hpp"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "fleet_format/test_fleet_nouns.hpp"
#include "format/json_reading.hpp"
#include "world/test_random_cases.hpp"

namespace berth::format {
namespace {

namespace json = boost::json;

Error refusal(std::string_view text) {
  const auto read = read_document(text, "spec", spec_of);
  EXPECT_FALSE(read) << text;
  return read ? Error{} : read.error();
}

TEST(SpecJson, ReadingWhatWasWrittenGivesTheSame) {
  for (std::uint64_t seed = 0; seed < world::random_cases(1000); ++seed) {
    SeededRandom random(seed);
    const DeploymentSpec spec = some_spec(random);
    const auto read = read_document(document(spec_to_json(spec)), "spec", spec_in_record);
    ASSERT_TRUE(read) << seed << ": " << read.error().to_text();
    ASSERT_EQ(*read, spec) << seed << ": " << document(spec_to_json(spec));
  }
}

TEST(SpecJson, HasTheKeysAndUnitsThatTheApiDocuments) {
  const std::string text =
      R"({"schema":1,"name":"chat","model":"m","runtime":"vllm","gpus":2,"replicas":4,"memory_bytes":1024,)"
      R"("capability":"9.0","node_selector":{"zone":"a"},"tolerates":["spot"],"exclusive":false,"key":"env:KEY",)"
      R"("command":["python3","serve.py","--port","{port}"],"environment":{"A":"b"},)"
      R"("secrets":{"HF_TOKEN":"file:/etc/berth/hf-token"},"user":"svc","folder":"/srv",)"
      R"("readiness":{"http":"/health","every_s":0.5,"failures":2},"liveness":{"tcp":true,"port":9000,"timeout_s":1},)"
      R"("ready_within_s":1200,"unready_within_s":300,"stop_grace_s":60,"host_memory_bytes":2048,"cpus":2.5,"rollout":{"surge":0,"unavailable":2},"single":true,)"
      R"("stop_after_s":10,"replace_after_s":90})";
  const auto spec = read_document(text, "spec", spec_of);
  ASSERT_TRUE(spec) << spec.error().to_text();
  EXPECT_EQ(spec->readiness->every, std::chrono::milliseconds(500));
  EXPECT_EQ(spec->liveness->port, 9000);
  EXPECT_EQ(spec->stop_grace, std::chrono::seconds(60));
  EXPECT_EQ(spec->secrets.at("HF_TOKEN").text(), "file:/etc/berth/hf-token");
  EXPECT_EQ(spec->rollout, (Rollout{0, 2}));
  EXPECT_EQ(document(spec_to_json(*spec)), text);
}

// A version that did not know the field wrote such a record.
TEST(SpecJson, WithoutUnreadyWithinAReplicaMayStayUnready) {
  const auto spec = read_document(R"({"schema":1,"name":"a","cpu":true,"command":["a"],"readiness":{"tcp":true}})",
                                  "spec", spec_in_record);
  ASSERT_TRUE(spec) << spec.error().to_text();
  EXPECT_EQ(spec->unready_within, std::nullopt);
}

// What a version before `exclusive` wrote keeps its GPUs to itself, unless it shared them by `sharing`.
TEST(SpecJson, WhatWasWrittenBeforeExclusiveMeansTheSame) {
  const auto read = [](const std::string& more) {
    const auto spec = read_document(R"({"schema":1,"name":"a","model":"b","gpus":1,"memory_bytes":1024)" + more + "}",
                                    "spec", spec_in_record);
    EXPECT_TRUE(spec) << more;
    return spec.value();
  };
  EXPECT_TRUE(read("").exclusive);
  EXPECT_TRUE(read(R"(,"sharing":"exclusive")").exclusive);
  EXPECT_FALSE(read(R"(,"sharing":"memory")").exclusive);
  EXPECT_FALSE(read(R"(,"exclusive":false)").exclusive);
  EXPECT_EQ(json::serialize(spec_to_json(read(R"(,"sharing":"memory")"))),
            R"({"name":"a","model":"b","gpus":1,"replicas":1,"memory_bytes":1024,"exclusive":false})");
}

TEST(SpecJson, WhatHasItsDefaultIsNotWritten) {
  DeploymentSpec spec;
  spec.name = DeploymentId("a");
  spec.model = "b";
  EXPECT_EQ(json::serialize(spec_to_json(spec)), R"({"name":"a","model":"b","replicas":1})");
}

TEST(SpecJson, AMistakeIsNamedWithItsPlaceAndTheNearestName) {
  EXPECT_EQ(refusal(R"({"name":"a","model":"b","replica":2})").message,
            "spec has an unknown member \"replica\"; did you mean \"replicas\"?");
  EXPECT_EQ(refusal(R"({"name":"a","model":"b","readiness":{"htp":"/"}})").message,
            "spec.readiness has an unknown member \"htp\"; did you mean \"http\"?");
  EXPECT_EQ(refusal(R"({"name":"a","model":"b","spread":"packed"})").message,
            "spec.spread is \"packed\", which is not known; did you mean \"pack\"?");
  EXPECT_EQ(refusal(R"({"model":"a"})").message, "spec has no \"name\"");
  EXPECT_EQ(refusal(R"({"name":"a","model":"b","replicas":2.5})").message, "spec.replicas is not a whole number");
  EXPECT_EQ(refusal(R"({"name":"a","model":"b","replicas":4294967296})").message,
            "spec.replicas is 4294967296; it must be at most 10000");
  EXPECT_EQ(refusal(R"({"name":"a","model":"b","replicas":-1})").message, "spec.replicas is not a whole number");
  EXPECT_EQ(refusal(R"({"name":"a","model":"b","replicas":10001})").message,
            "spec.replicas is 10001; it must be at most 10000");
  EXPECT_EQ(refusal(R"({"name":"a","model":"b","liveness":{"failures":0}})").message,
            "spec.liveness.failures is 0; it must be at least 1");
  EXPECT_EQ(refusal(R"({"name":"a b","model":"b"})").message,
            "spec.name is \"a b\", which is not a valid name: use letters, digits, '.', '_' and '-', starting with a "
            "letter or digit");
  EXPECT_EQ(refusal(R"({"name":"a","model":"b","stop_grace_s":-1})").message,
            "spec.stop_grace_s is negative or too large");
  EXPECT_EQ(refusal(R"({"name":"a","model":"b","stop_grace_s":1e300})").message,
            "spec.stop_grace_s is more than 366 days");
  EXPECT_EQ(refusal(R"({"name":"a","model":"b","command":"sleep 1"})").message, "spec.command is not an array");
  EXPECT_EQ(refusal(R"({"name":"a","model":"b","liveness":{"port":65536}})").message,
            "spec.liveness.port is 65536; it must be at most 65535");
  EXPECT_EQ(refusal("[]").message, "spec is not an object");
  EXPECT_NE(refusal("{\"name\":\n  \"a\", }").message.find("spec:2:8: this is not JSON"), std::string::npos);
}

TEST(SpecJson, ASecretItselfIsRefusedAndNotRepeated) {
  const Error error = refusal(R"({"name":"a","model":"b","secrets":{"T":"sk-abcdefgh"}})");
  EXPECT_NE(error.message.find("spec.secrets.T: this looks like the key itself"), std::string::npos) << error.message;
  EXPECT_EQ(error.to_text().find("abcdefgh"), std::string::npos);
}

TEST(SpecJson, ANewerSchemaIsRefusedAsSuch) {
  const Error error = refusal(R"({"schema":2,"name":"a","model":"b","warp":9})");
  EXPECT_EQ(error.code, ErrorCode::not_supported);
  EXPECT_EQ(error.message, "spec was written by a newer version of berth (schema 2, this version reads up to 1)");
  EXPECT_EQ(refusal(R"({"schema":"1","name":"a","model":"b"})").message, "spec.schema is not a whole number");
}

TEST(ProjectJson, ReadingWhatWasWrittenGivesTheSame) {
  for (std::uint64_t seed = 0; seed < world::random_cases(300); ++seed) {
    SeededRandom random(seed);
    Project project;
    project.cluster.name = "c" + std::to_string(seed);
    for (std::uint64_t count = random.below(4); count > 0; --count) {
      DeploymentSpec& spec = project.deployments.emplace_back();
      spec.name = DeploymentId("d" + std::to_string(count));
      spec.command = several(random, some_text);
      spec.environment = some_labels(random);
      spec.replicas = static_cast<std::uint32_t>(random.below(replicas_max + 1));
    }
    project.egress_preference = some_preference(random);
    const auto read = read_document(document(project_to_json(project)), "project", project_of);
    ASSERT_TRUE(read) << seed << ": " << read.error().to_text();
    EXPECT_EQ(read->cluster.name, project.cluster.name);
    EXPECT_EQ(read->deployments, project.deployments);
    EXPECT_EQ(read->egress_preference, project.egress_preference);
  }
}

TEST(ProjectJson, IsValidatedWhenItIsReadAsAFile) {
  const auto refused = [](const std::string& deployments) {
    const auto read = read_project_json(R"({"cluster":{"name":"c"},"deployments":[)" + deployments + "]}", "p.json");
    return read ? "valid" : read.error().message;
  };
  const std::string good = R"({"name":"a","cpu":true,"command":["x"]})";
  EXPECT_EQ(refused(good), "valid");
  EXPECT_EQ(refused(good + "," + good), "two deployments are named \"a\"");
  EXPECT_EQ(refused(R"({"name":"a","cpu":true,"command":["x"],"folder":"y"})"),
            "the folder \"y\" of deployment \"a\" is not an absolute path");
  EXPECT_EQ(refused(R"({"name":"a","cpu":true,"command":["x"],"replicas":"2"})"),
            "p.json.deployments[0].replicas is not a whole number");
  EXPECT_EQ(read_project_json(R"({"cluster":{"name":"a b"}})", "p.json").error().message,
            "p.json.cluster.name is \"a b\", which is not a valid name: use letters, digits, '.', '_' and '-', "
            "starting with a "
            "letter or digit");
  EXPECT_TRUE(read_project_json(R"({"cluster":{"name":"c","bind":"127.0.0.1:8080"}})", "p.json"))
      << "commands of earlier versions send it";
}

}  // namespace
}  // namespace berth::format
