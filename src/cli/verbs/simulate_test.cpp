#include "cli/verbs/simulate.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <boost/json.hpp>
#include <filesystem>

#include "berth/placement.hpp"
#include "cli/input/gunzip.hpp"
#include "cli/text/terminal.hpp"
#include "world/files.hpp"
#ifdef BERTH_HAS_ZLIB
#include <zlib.h>
#endif

namespace berth::cli {

using namespace world;
namespace {

namespace fs = std::filesystem;

const std::string source = std::string(BERTH_SOURCE_FOLDER) + "/";

struct SimulateOutcome {
  int status = 0;
  std::string out, err;
};

class SimulateCommand : public testing::Test {
 protected:
  SimulateCommand() {
    std::string name = (fs::temp_directory_path() / "berth-simulate-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~SimulateCommand() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = (folder_ / name).string();
    EXPECT_TRUE(write_text(path, text));
    return path;
  }
  static SimulateRequestsArguments example() {
    SimulateRequestsArguments arguments;
    arguments.trace = source + "examples/requests.txt";
    arguments.replicas = 4;
    arguments.speeds = "1,2";
    arguments.load = 0.85;
    return arguments;
  }
  static SimulateOutcome call(const SimulateRequestsArguments& arguments) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    SimulateOutcome outcome;
    outcome.status = run_simulate_requests(arguments);
    outcome.out = testing::internal::GetCapturedStdout();
    outcome.err = testing::internal::GetCapturedStderr();
    return outcome;
  }
  static void expect_refused(const SimulateRequestsArguments& arguments, int status, const std::string& words) {
    const SimulateOutcome outcome = call(arguments);
    EXPECT_EQ(outcome.status, status) << words;
    EXPECT_EQ(outcome.out, "");
    EXPECT_NE(outcome.err.find(words), std::string::npos) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }

  fs::path folder_;
};

TEST_F(SimulateCommand, TheDocumentedExampleIsWhatTheCommandPrints) {
  const std::string page = read_text(source + "docs/guide/simulate.md").value();
  const SimulateOutcome outcome = call(example());
  EXPECT_EQ(outcome.status, done) << outcome.err;
  EXPECT_NE(page.find("```\n$ berth simulate requests --trace examples/requests.txt --replicas 4 --speeds 1,2 --load "
                      "0.85\n" +
                      outcome.out + "```"),
            std::string::npos)
      << outcome.out;
}

TEST_F(SimulateCommand, JsonIsAnObjectForOnePolicyAndAnArrayForAll) {
  SimulateRequestsArguments arguments = example();
  arguments.json = true;
  const auto all = boost::json::parse(call(arguments).out).as_array();
  ASSERT_EQ(all.size(), policies().size());
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i].at("policy").as_string(), policies()[i].name);
  arguments.policy = "power_of_two";
  const SimulateOutcome outcome = call(arguments);
  const auto object = boost::json::parse(outcome.out).as_object();
  EXPECT_EQ(object.at("policy").as_string(), "power_of_two");
  const double p99 = object.at("p99").as_double();
  EXPECT_GT(p99, object.at("p50").as_double());
  EXPECT_NEAR(object.at("p99_over_central").as_double(), p99 / object.at("central_p99").as_double(), 1e-9);
  EXPECT_GE(object.at("imbalance").as_double(), 1);
  EXPECT_EQ(call(arguments).out, outcome.out) << "the same seeds, the same bytes";
  arguments.seeds = 3;
  EXPECT_NE(call(arguments).out, outcome.out);
}

TEST_F(SimulateCommand, WrongInputIsOneErrorMessage) {
  using Suggestion = void (*)(SimulateRequestsArguments&);
  struct Case {
    std::string words;
    Suggestion change;
  };
  for (const auto& [words, change] : {
           Case{"--replicas of at least 1", [](auto& a) { a.replicas = 0; }},
           {"a load of 0", [](auto& a) { a.load = 0; }},
           {"a load of -0.5", [](auto& a) { a.load = -0.5; }},
           {"a load of inf", [](auto& a) { a.load = 1 / 0.0; }},
           {"did you mean least_loaded?", [](auto& a) { a.policy = "leastloaded"; }},
           {"\"\" is not a speed", [](auto& a) { a.speeds = "1,,2"; }},
           {"\"\" is not a speed", [](auto& a) { a.speeds = ""; }},
           {"\"0\" is not a speed", [](auto& a) { a.speeds = "1,0"; }},
           {"\"2x\" is not a speed", [](auto& a) { a.speeds = "2x"; }},
           {"no work model \"token\"", [](auto& a) { a.work = "token"; }},
           {"--seeds of at least 1", [](auto& a) { a.seeds = 0; }},
           {"a mean work of 0 ms", [](auto& a) { a.scale_ms = 0; }},
           {"-1 ms old", [](auto& a) { a.stale_ms = -1; }},
           {"hundred years", [](auto& a) { a.load = 1e-15; }},
           {"No such file", [](auto& a) { a.trace += ".gz"; }},
       }) {
    SimulateRequestsArguments arguments = example();
    change(arguments);
    expect_refused(arguments, wrong_input, words);
  }
  SimulateRequestsArguments arguments = example();
  arguments.trace = write("bad.txt", "0 1 2\n1 x 2\n");
  expect_refused(arguments, wrong_input, "bad.txt, line 2: the size in is \"x\"");
  arguments.trace = folder_.string();
  expect_refused(arguments, environment_error, "Is a directory");
}

TEST_F(SimulateCommand, OverloadIsALoad) {
  SimulateRequestsArguments arguments = example();
  arguments.load = 1.2;
  EXPECT_EQ(call(arguments).status, done);
}

#ifdef BERTH_HAS_ZLIB
std::string packed(std::string text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 9, Z_DEFAULT_STRATEGY), Z_OK);
  std::string bytes(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(text.data());
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  bytes.resize(stream.total_out);
  deflateEnd(&stream);
  return bytes;
}

TEST_F(SimulateCommand, AGzippedTraceIsTheSameTrace) {
  SimulateRequestsArguments arguments = example();
  const std::string plain = call(arguments).out;
  arguments.trace = write("trace", packed(read_text(arguments.trace).value()));
  EXPECT_EQ(call(arguments).out, plain);
}

TEST(Gunzip, GzipInOneOrSeveralPiecesAndPlainTextAsItIs) {
  EXPECT_EQ(gunzip("0 1 2\n", "t").value(), "0 1 2\n");
  EXPECT_EQ(gunzip("", "t").value(), "");
  const std::string large(300'000, 'a');
  EXPECT_EQ(gunzip(packed(large), "t").value(), large);
  EXPECT_EQ(gunzip(packed("one ") + packed("two"), "t").value(), "one two");
}

TEST(Gunzip, CutOrDamagedFilesAreRefused) {
  std::string bytes = packed("0 1 2\n3 4 5\n");
  for (std::size_t length = 2; length < bytes.size(); ++length) {
    const auto text = gunzip(bytes.substr(0, length), "t.gz");
    ASSERT_FALSE(text) << length;
    EXPECT_EQ(text.error().message, "t.gz is a truncated gzip file");
  }
  bytes[bytes.size() - 8] = static_cast<char>(bytes[bytes.size() - 8] ^ 1);  // the checksum
  EXPECT_EQ(gunzip(bytes, "t.gz").error().message, "t.gz is a damaged gzip file");
}
#else
TEST(Gunzip, NeedsZlib) { GTEST_SKIP() << "zlib is not installed"; }
#endif

}  // namespace
}  // namespace berth::cli
