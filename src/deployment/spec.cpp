#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <limits>
#include <utility>

#include "berth/deployment.hpp"
#include "berth/placement.hpp"
#include "deployment/faults.hpp"
#include "deployment/identifiers.hpp"
#include "deployment/key_source.hpp"
#include "placement/nearest_name.hpp"

namespace berth::deployment {
namespace {

constexpr std::array<std::pair<RuntimeKind, std::string_view>, 16> runtime_words{{
    {RuntimeKind::vllm, "vllm"},
    {RuntimeKind::tensor_rt, "tensor_rt"},
    {RuntimeKind::ort, "ort"},
    {RuntimeKind::candle, "candle"},
    {RuntimeKind::cudarc, "cudarc"},
    {RuntimeKind::mistral_rs, "mistral_rs"},
    {RuntimeKind::python, "python"},
    {RuntimeKind::custom, "custom"},
    {RuntimeKind::process, "process"},
    {RuntimeKind::library, "library"},
    {RuntimeKind::simulated, "simulated"},
    {RuntimeKind::open_ai, "open_ai"},
    {RuntimeKind::anthropic, "anthropic"},
    {RuntimeKind::gemini, "gemini"},
    {RuntimeKind::lite_llm, "lite_llm"},
    {RuntimeKind::http, "http"},
}};

bool takes_name(RuntimeKind kind) { return kind == RuntimeKind::python || kind == RuntimeKind::custom; }

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// The runtime by the model's name. The first rule that matches wins;
// docs/guide/deployment.md publishes the table, and a test compares the two.
enum class Part : std::uint8_t { contains, starts, ends };
struct Rule {
  Part part;
  std::string_view text;
  RuntimeKind runtime;
};
constexpr Rule rules[] = {
    {Part::contains, "via-litellm", RuntimeKind::lite_llm},
    {Part::starts, "litellm/", RuntimeKind::lite_llm},
    {Part::starts, "gpt-4", RuntimeKind::open_ai},
    {Part::starts, "gpt-3.5", RuntimeKind::open_ai},
    {Part::starts, "gpt-5", RuntimeKind::open_ai},
    {Part::starts, "o1-", RuntimeKind::open_ai},
    {Part::starts, "o3-", RuntimeKind::open_ai},
    {Part::starts, "o4-", RuntimeKind::open_ai},
    {Part::starts, "chatgpt-", RuntimeKind::open_ai},
    {Part::starts, "claude-", RuntimeKind::anthropic},
    {Part::starts, "anthropic/", RuntimeKind::anthropic},
    {Part::starts, "gemini-", RuntimeKind::gemini},
    {Part::starts, "google/gemini", RuntimeKind::gemini},
    {Part::ends, ".onnx", RuntimeKind::ort},
    {Part::ends, ".engine", RuntimeKind::tensor_rt},
    {Part::ends, ".plan", RuntimeKind::tensor_rt},
    {Part::ends, ".gguf", RuntimeKind::mistral_rs},
    {Part::contains, "llama", RuntimeKind::vllm},
    {Part::contains, "mistral", RuntimeKind::vllm},
    {Part::contains, "mixtral", RuntimeKind::vllm},
    {Part::contains, "qwen", RuntimeKind::vllm},
    {Part::contains, "deepseek", RuntimeKind::vllm},
    {Part::contains, "gemma", RuntimeKind::vllm},
};

bool matches(const Rule& rule, std::string_view model) {
  switch (rule.part) {
    case Part::contains: return model.find(rule.text) != std::string_view::npos;
    case Part::starts: return model.starts_with(rule.text);
    case Part::ends: return model.ends_with(rule.text);
  }
  return false;
}

// Empty if no rule matches.
std::optional<RuntimeKind> inferred_from(std::string_view model) {
  const std::string low = lower(model);
  for (const Rule& rule : rules) {
    if (matches(rule, low)) return rule.runtime;
  }
  return std::nullopt;
}

// Whether the text begins like a key or token of a well-known provider.
bool looks_like_a_secret(std::string_view text) {
  const std::string low = lower(text);
  for (const std::string_view start : {"sk-", "sk_", "pk-", "aiza", "ghp_", "github_pat_", "hf_", "xox", "bearer"}) {
    if (low.starts_with(start)) return true;
  }
  return false;
}

Error wrong(std::string message, std::string advice) {
  return {ErrorCode::invalid_argument, std::move(message), std::move(advice)};
}

}  // namespace

Runtime runtime_from(std::string_view text) {
  const std::size_t colon = text.find(':');
  for (const auto& [kind, word] : runtime_words) {
    if (takes_name(kind) && colon != std::string_view::npos && text.substr(0, colon) == word && colon + 1 < text.size())
      return {kind, std::string(text.substr(colon + 1))};
    if (text == word) return {kind, {}};
  }
  return {RuntimeKind::unknown, std::string(text)};
}

std::string to_string(const Runtime& runtime) {
  for (const auto& [kind, word] : runtime_words) {
    if (kind == runtime.kind) return std::string(word) + (runtime.name.empty() ? "" : ":" + runtime.name);
  }
  return runtime.name;
}

Runtime infer_runtime(std::string_view model) { return {inferred_from(model).value_or(RuntimeKind::process), {}}; }

std::string_view to_string(Provider provider) noexcept {
  switch (provider) {
    case Provider::open_ai: return "open_ai";
    case Provider::anthropic: return "anthropic";
    case Provider::gemini: return "gemini";
    case Provider::lite_llm: return "lite_llm";
    case Provider::http: return "http";
  }
  return "http";
}

std::optional<Provider> provider_named(std::string_view name) {
  for (const Provider provider :
       {Provider::open_ai, Provider::anthropic, Provider::gemini, Provider::lite_llm, Provider::http}) {
    if (name == to_string(provider)) return provider;
  }
  return std::nullopt;
}

std::string_view to_string(Spread spread) noexcept {
  switch (spread) {
    case Spread::spread: return "spread";
    case Spread::pack: return "pack";
    case Spread::one_per_node: return "one_per_node";
  }
  return "spread";
}

std::string_view to_string(OnShortage on_shortage) noexcept {
  return on_shortage == OnShortage::best_effort ? "best_effort" : "all";
}

std::string_view to_string(OnCapacityExhausted on_capacity_exhausted) noexcept {
  switch (on_capacity_exhausted) {
    case OnCapacityExhausted::queue: return "queue";
    case OnCapacityExhausted::reject: return "reject";
    case OnCapacityExhausted::fallback: return "fallback";
  }
  return "queue";
}

std::string_view to_string(Affinity affinity) noexcept {
  return affinity == Affinity::strict ? "strict" : "bounded_load";
}

std::string_view to_string(Reach reach) noexcept { return reach == Reach::direct ? "direct" : "relay"; }

std::string_view to_string(ReasonKind kind) noexcept {
  switch (kind) {
    case ReasonKind::no_gpu_nodes: return "no_gpu_nodes";
    case ReasonKind::no_egress_nodes: return "no_egress_nodes";
    case ReasonKind::not_enough_gpus: return "not_enough_gpus";
    case ReasonKind::not_enough_memory: return "not_enough_memory";
    case ReasonKind::unknown_transport: return "unknown_transport";
    case ReasonKind::zero_gpus: return "zero_gpus";
    case ReasonKind::invalid_spec: return "invalid_spec";
    case ReasonKind::no_nodes: return "no_nodes";
    case ReasonKind::node_selector: return "node_selector";
    case ReasonKind::taint: return "taint";
    case ReasonKind::not_in_service: return "not_in_service";
    case ReasonKind::unfit_gpus: return "unfit_gpus";
    case ReasonKind::one_per_node: return "one_per_node";
    case ReasonKind::drain_blocked: return "drain_blocked";
    case ReasonKind::refused: return "refused";
  }
  return "invalid_spec";
}

Result<KeyRef> KeyRef::parse(std::string_view text) {
  const std::string advice = "give the location of the key, as in \"env:OPENAI_KEY\" or \"file:/run/secrets/openai\"";
  const std::size_t colon = text.find(':');
  const std::string_view scheme = text.substr(0, colon == std::string_view::npos ? 0 : colon);
  const std::string_view place = scheme.empty() ? text : text.substr(colon + 1);
  const std::string_view last = place.substr(place.rfind('/') == std::string_view::npos ? 0 : place.rfind('/') + 1);
  // None of these messages repeats the text: it may be the secret itself. A place of a secret may start like a
  // secret: HF_TOKEN, hf_token.
  const auto is_random = [](std::string_view part) {
    return std::any_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c); }) &&
           std::any_of(part.begin(), part.end(), [](unsigned char c) { return std::islower(c); });
  };
  if (looks_like_a_secret(text) || (looks_like_a_secret(place) && is_random(place)) ||
      (looks_like_a_secret(last) && is_random(last)))
    return wrong("this looks like the key itself, which must not be in a file", advice);
  if (scheme == "env") {
    const bool identifier = !place.empty() && !std::isdigit(static_cast<unsigned char>(place.front())) &&
                            std::all_of(place.begin(), place.end(),
                                        [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; });
    if (!identifier) return wrong("\"env:\" is not followed by the name of an environment variable", advice);
  } else if (scheme == "file") {
    if (place.empty()) return wrong("\"file:\" is not followed by a path", advice);
  } else {
    return wrong("a key must be a reference to its location, and this is not one", advice);
  }
  return KeyRef(std::string(text));
}

Runtime DeploymentSpec::effective_runtime() const { return runtime ? *runtime : infer_runtime(model); }

Transport DeploymentSpec::transport() const {
  switch (effective_runtime().kind) {
    case RuntimeKind::open_ai: return Remote{Provider::open_ai};
    case RuntimeKind::anthropic: return Remote{Provider::anthropic};
    case RuntimeKind::gemini: return Remote{Provider::gemini};
    case RuntimeKind::lite_llm: return Remote{Provider::lite_llm};
    case RuntimeKind::http: return Remote{Provider::http};
    case RuntimeKind::unknown: return UnknownTransport{};
    default: break;
  }
  if (cpu) return LocalCpu{};
  return LocalGpu{};
}

std::uint32_t DeploymentSpec::gpus_per_replica() const {
  return std::holds_alternative<LocalGpu>(transport()) ? gpus.value_or(1) : 0;
}

bool same_but_replicas(const DeploymentSpec& a, const DeploymentSpec& b) {
  DeploymentSpec other = b;
  other.replicas = a.replicas;
  return a == other;
}

Result<void> check_needs(const DeploymentSpec& spec) {
  const std::string name = "\"" + spec.name.text() + "\"";
  if (!is_name(spec.name.text()))
    return wrong("the deployment name " + name + " is not a valid name",
                 "use letters, digits, '.', '_' and '-', starting with a letter or digit");
  if (spec.model.empty() && spec.command.empty())
    return wrong("deployment " + name + " has neither a model nor a command",
                 "add model = \"...\", or command = [\"...\"] for a program of your own");
  if (spec.replicas > replicas_max)
    return wrong("deployment " + name + " requests " + std::to_string(spec.replicas) + " replicas",
                 "ask for at most " + std::to_string(replicas_max));
  const Transport transport = spec.transport();
  const bool on_gpus = std::holds_alternative<LocalGpu>(transport);
  if (on_gpus && spec.gpus == 0u)
    return wrong("deployment " + name + " runs on GPUs but requests none",
                 "set cpu = true if it needs no GPU, or gpus to at least 1");
  if (std::holds_alternative<LocalCpu>(transport) && spec.gpus.value_or(0) > 0)
    return wrong("deployment " + name + " requests both GPUs and CPU mode", "remove gpus or cpu = true");
  if (on_gpus && !spec.exclusive && spec.memory_bytes == 0)
    return wrong("deployment " + name + " shares GPUs without specifying how much memory it needs",
                 "add memory = \"8GiB\" or however much it needs per GPU");
  if (!spec.runtime && spec.model.empty() && !spec.cpu && !spec.gpus)
    return wrong("deployment " + name + " does not specify whether it needs GPUs", "add gpus = 1 or cpu = true");
  if (!spec.runtime && !inferred_from(spec.model) && !spec.cpu && !spec.gpus)
    return wrong("the runtime of deployment " + name + " cannot be inferred from the model \"" + spec.model + "\"",
                 "add runtime = \"...\" (vllm, open_ai, process, ...), or gpus or cpu for a program of your own");
  if (spec.runtime && spec.runtime->kind == RuntimeKind::unknown) {
    // A name unlike all known ones may belong to a newer version.
    std::vector<std::string_view> known;
    for (const auto& [kind, word] : runtime_words) known.push_back(word);
    const std::string given = spec.runtime->name.substr(0, spec.runtime->name.find(':'));
    if (const auto nearest = placement::nearest_name(given, known))
      return wrong("runtime \"" + spec.runtime->name + "\" of deployment " + name + " is not known",
                   "did you mean \"" + std::string(*nearest) + "\"?");
  }
  for (const auto& name : {spec.policy, spec.serving.policy}) {
    if (!name) continue;
    if (const auto policy = policy_named(*name); !policy) return policy.error();
  }
  const bool falls_back = spec.serving.on_capacity_exhausted == OnCapacityExhausted::fallback;
  if (falls_back != spec.serving.fallback.has_value())
    return wrong(
        "deployment " + name + (falls_back ? " has no deployment to fall back to" : " names a fallback it never uses"),
        "set fallback = \"NAME\" together with on_capacity_exhausted = \"fallback\"");
  if (spec.serving.fallback == spec.name)
    return wrong("deployment " + name + " falls back to itself", "name another deployment");
  if (spec.serving.max_concurrent == 0)
    return wrong("deployment " + name + " cannot serve requests: max_concurrent is 0",
                 "set max_concurrent to at least 1");
  const std::optional<std::string>&host = spec.serving.host, &path = spec.serving.path;
  const auto is_word = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.'; };
  if (host && (host->empty() || host->size() > 253 || !std::all_of(host->begin(), host->end(), is_word)))
    return wrong("deployment " + name + " has the host \"" + *host + "\", which is not a host name",
                 "write it without a port and in lower case, such as host = \"chat.example.org\"");
  const auto is_plain = [](char c) { return c > ' ' && c <= '~' && c != '?' && c != '#' && c != '%'; };
  if (path && (!path->starts_with('/') || path->size() > 1000 || !std::all_of(path->begin(), path->end(), is_plain) ||
               (*path + "/").find("/../") != path->npos || (*path + "/").find("/./") != path->npos))
    return wrong("deployment " + name + " has the path \"" + *path + "\"",
                 "begin it with / and use printable characters without ?, # and %, such as path = \"/chat\"");
  if (spec.serving.queue_timeout < Duration::zero() || spec.serving.queue_timeout > std::chrono::hours(24))
    return wrong("deployment " + name + " has a queue_timeout out of range", "use 0s to 24h");
  for (const auto& [field, timeout] : {std::pair("first_byte_timeout", spec.serving.first_byte_timeout),
                                       std::pair("idle_timeout", spec.serving.idle_timeout)})
    if (timeout < std::chrono::seconds(1) || timeout > std::chrono::hours(24))
      return wrong("deployment " + name + " has " + field + " out of range", "use 1s to 24h");
  if (spec.serving.key) {
    if (const auto source = parse_key_source(*spec.serving.key); !source) return source.error();
    if (spec.replicas > keyed_replicas_max)
      return wrong("deployment " + name + " has serving.key and " + std::to_string(spec.replicas) + " replicas",
                   "use at most " + std::to_string(keyed_replicas_max) + " replicas, or no key");
  } else if (spec.serving.affinity != Affinity::bounded_load) {
    return wrong("deployment " + name + " has an affinity but no key", "add key = \"header:NAME\" to its serving");
  }
  return {};
}

}  // namespace berth::deployment
