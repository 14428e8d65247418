#include <gtest/gtest.h>

#include <sstream>

#include "deployment/test_nodes.hpp"

namespace berth::deployment {
namespace {

DeploymentSpec with_model(const std::string& model) {
  DeploymentSpec spec = gpu_spec("d", 1);
  spec.model = model;
  return spec;
}

TEST(Spec, S1_6_AnExplicitRuntimeWinsOverTheModelName) {
  DeploymentSpec spec = with_model("gpt-4o");
  EXPECT_EQ(spec.transport(), Transport(Remote{Provider::open_ai}));
  spec.runtime = runtime_from("vllm");
  EXPECT_EQ(spec.transport(), Transport(LocalGpu{}));
  spec = with_model("llama-3.1-8b");
  EXPECT_EQ(spec.effective_runtime().kind, RuntimeKind::vllm);
  EXPECT_EQ(spec.transport(), Transport(LocalGpu{}));
  spec.runtime = runtime_from("gemini");
  EXPECT_EQ(spec.transport(), Transport(Remote{Provider::gemini}));
}

TEST(Spec, RuntimesAreInferredFromModelNamesWhateverTheirCase) {
  const std::pair<const char*, RuntimeKind> cases[] = {
      {"gpt-4o-mini", RuntimeKind::open_ai},
      {"GPT-3.5-turbo", RuntimeKind::open_ai},
      {"o1-preview", RuntimeKind::open_ai},
      {"o3-mini", RuntimeKind::open_ai},
      {"gpt-5", RuntimeKind::open_ai},
      {"o4-mini", RuntimeKind::open_ai},
      {"ChatGPT-4o-latest", RuntimeKind::open_ai},
      {"claude-3-opus", RuntimeKind::anthropic},
      {"anthropic/claude-3", RuntimeKind::anthropic},
      {"Gemini-1.5-pro", RuntimeKind::gemini},
      {"google/gemini-flash", RuntimeKind::gemini},
      {"litellm/anything", RuntimeKind::lite_llm},
      {"gpt-4o-via-litellm", RuntimeKind::lite_llm},
      {"meta-llama/Llama-3.1-8B", RuntimeKind::vllm},
      {"resnet50.onnx", RuntimeKind::ort},
      {"gpt-neo", RuntimeKind::process},
      {"o1", RuntimeKind::process},
      {"", RuntimeKind::process},
  };
  for (const auto& [model, kind] : cases) EXPECT_EQ(infer_runtime(model).kind, kind) << model;
}

TEST(Spec, RuntimesHaveOneSpellingEach) {
  for (const char* word : {"vllm", "tensor_rt", "ort", "candle", "cudarc", "mistral_rs", "python:diffusers", "open_ai",
                           "anthropic", "gemini", "lite_llm", "http", "custom:mine", "process", "library", "simulated"})
    EXPECT_EQ(to_string(runtime_from(word)), word);
  EXPECT_EQ(runtime_from("python:diffusers").name, "diffusers");
}

TEST(Spec, RemoteAreExactlyTheProvidersAndEverythingElseIsLocal) {
  for (const char* word : {"open_ai", "anthropic", "gemini", "lite_llm", "http"}) {
    DeploymentSpec spec = with_model("m");
    spec.runtime = runtime_from(word);
    const Transport transport = spec.transport();
    ASSERT_TRUE(std::holds_alternative<Remote>(transport)) << word;
    EXPECT_EQ(to_string(std::get<Remote>(transport).provider), word);
  }
  for (const char* word : {"vllm", "tensor_rt", "ort", "candle", "cudarc", "mistral_rs", "python:x", "custom:x",
                           "process", "library", "simulated"}) {
    DeploymentSpec spec = with_model("m");
    spec.runtime = runtime_from(word);
    EXPECT_EQ(spec.transport(), Transport(LocalGpu{})) << word;
    spec.gpus.reset();
    spec.cpu = true;
    EXPECT_EQ(spec.transport(), Transport(LocalCpu{})) << word;
  }
}

TEST(Spec, S1_F13_AnUnknownRuntimeIsKeptByItsName) {
  const Runtime runtime = runtime_from("quantum_link");
  EXPECT_EQ(runtime.kind, RuntimeKind::unknown);
  EXPECT_EQ(to_string(runtime), "quantum_link");
  DeploymentSpec spec = with_model("gpt-4o");
  spec.runtime = runtime;
  EXPECT_EQ(spec.transport(), Transport(UnknownTransport{})) << "an explicit runtime overrides the model's name";
  EXPECT_TRUE(validate(spec)) << "a newer file is valid; only its plan says it cannot be placed";
}

TEST(Spec, S1_F11_KeysAreReferencesAndSecretsAreRefusedUnseen) {
  EXPECT_EQ(KeyRef::parse("env:OPENAI_KEY")->text(), "env:OPENAI_KEY");
  EXPECT_TRUE(KeyRef::parse("file:/run/secrets/openai"));
  EXPECT_TRUE(KeyRef::parse("env:HF_TOKEN")) << "begins like a key and is the name of a variable";
  EXPECT_TRUE(KeyRef::parse("env:HF_TOKEN_2"));
  EXPECT_TRUE(KeyRef::parse("file:/etc/berth/hf_token"));
  for (const char* secret : {"sk-abcdef123456", "env:sk-abcdef123456", "env:hf_abcdef123456", "file:sk-abcdef123456",
                             "file:/tmp/sk-abcdef123456", "SK-abcdef123456", "AIzaabcdef123456", "abcdef123456",
                             "env:abcdef-123456", "env:", "file:", "", "vault:abcdef123456"}) {
    const auto key = KeyRef::parse(secret);
    ASSERT_FALSE(key) << secret;
    EXPECT_EQ(key.error().to_text().find("abcdef"), std::string::npos) << "the refusal must not repeat the secret";
    EXPECT_NE(key.error().advice, "");
  }
}

TEST(Spec, AKeyPrintsItsReference) {
  std::ostringstream out;
  out << *KeyRef::parse("env:KEY");
  EXPECT_EQ(out.str(), "env:KEY");
}

TEST(Spec, ValidationFindsContradictions) {
  EXPECT_TRUE(validate(gpu_spec("ok", 2, 4)));
  EXPECT_TRUE(validate(cpu_spec("ok", 2)));
  EXPECT_TRUE(validate(remote_spec("ok", 2)));
  const auto broken = [](auto change) {
    DeploymentSpec spec = gpu_spec("d", 1);
    change(spec);
    const auto result = validate(spec);
    return result ? std::string("valid") : result.error().message;
  };
  EXPECT_EQ(broken([](auto& s) { s.gpus = 0; }), "deployment \"d\" runs on GPUs but requests none");
  EXPECT_EQ(broken([](auto& s) { s.cpu = true; }), "deployment \"d\" requests both GPUs and CPU mode");
  EXPECT_NE(broken([](auto& s) { s.name = DeploymentId("a b"); }), "valid");
  EXPECT_NE(broken([](auto& s) { s.model.clear(); }), "valid");
  EXPECT_NE(broken([](auto& s) { s.exclusive = false; }), "valid") << "sharing needs an amount";
  EXPECT_NE(broken([](auto& s) { s.policy = "no_such_policy"; }), "valid");
  EXPECT_NE(broken([](auto& s) { s.runtime = runtime_from("vlm"); }), "valid");
  EXPECT_NE(broken([](auto& s) {
              s.model = "resnet";
              s.gpus.reset();
            }),
            "valid")
      << "nothing determines the runtime";
  EXPECT_NE(broken([](auto& s) { s.replicas = replicas_max + 1; }), "valid");
  EXPECT_NE(broken([](auto& s) { s.serving.on_capacity_exhausted = OnCapacityExhausted::fallback; }), "valid");
  EXPECT_NE(broken([](auto& s) { s.serving.fallback = DeploymentId("other"); }), "valid");
  EXPECT_NE(broken([](auto& s) { s.serving.max_concurrent = 0; }), "valid");
  EXPECT_NE(broken([](auto& s) { s.serving.first_byte_timeout = Duration::zero(); }), "valid");
  EXPECT_NE(broken([](auto& s) { s.serving.idle_timeout = std::chrono::hours(25); }), "valid");
}

}  // namespace
}  // namespace berth::deployment
