#include "berth/pool.hpp"
#include "berth/bytes.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "berth/ledger.hpp"
#include "device/query.hpp"
#include "inventory/listed_topology.hpp"
#include "pool/pool_state.hpp"

namespace berth {
namespace {

using pool::Board;
using pool::PoolState;

// The codes and names of the CUDA driver, which callers of CUDA code look for.
const DriverError invalid_value{1, "CUDA_ERROR_INVALID_VALUE"};
const DriverError no_device{100, "CUDA_ERROR_NO_DEVICE"};
const DriverError invalid_device{101, "CUDA_ERROR_INVALID_DEVICE"};

Error wrong_option(std::string what) { return {ErrorCode::invalid_argument, std::move(what), "see PoolOptions"}; }

// A year; adding it to a time does not overflow.
constexpr Duration for_ever = std::chrono::hours(24 * 365);

// Simulated devices and test devices belong to the program, not to the machine.
bool is_of_the_machine(const DeviceInfo& info) {
  return info.backend == "cuda" || info.backend == "opencl" || info.backend == "host";
}

// Queries links only from back ends whose devices are in the pool, because other back ends may hang.
Topology topology_of(device::Backends backends, std::span<const DeviceInfo> infos, Duration deadline) {
  std::vector<DeviceId> ids;
  for (const DeviceInfo& info : infos) ids.push_back(info.id);
  std::vector<std::shared_ptr<Backend>> asked;
  std::copy_if(backends.begin(), backends.end(), std::back_inserter(asked), [&](const auto& backend) {
    return std::any_of(infos.begin(), infos.end(),
                       [&](const DeviceInfo& info) { return info.backend == backend->name(); });
  });
  return inventory::listed_topology(std::move(ids), device::query_links(asked, deadline));
}

Error none_usable(const std::vector<Board::Entry>& entries) {
  std::string message = "no device of the pool can be used now";
  for (const Board::Entry& entry : entries) {
    message += (&entry == &entries.front() ? " [" : "; ") + entry.info->id.text() + ": ";
    message += entry.error ? entry.error->message : std::string(to_string(entry.view.health));
    if (entry.view.intent != Intent::in_service) message += ", " + std::string(to_string(entry.view.intent));
    if (entry.view.sample == SampleState::stale) message += ", stale";
  }
  if (!entries.empty()) message += "]";
  return {ErrorCode::no_eligible_device, std::move(message), "look at the pool's status"};
}

Result<std::shared_ptr<Device>> usable(const Board::Entry& entry) {
  if (entry.device) return entry.device;
  return *entry.error;
}

// One line about a device for people, without pointers.
std::string line(const Board::Entry& entry, TimePoint now) {
  const DeviceInfo& info = *entry.info;
  const DeviceView& view = entry.view;
  std::string text = info.backend + ":" + std::to_string(info.ordinal) + " " + info.id.text();
  if (!info.name.empty() && info.name != info.id.text()) text += " (" + info.name + ")";
  text += ": " + std::string(to_string(view.health));
  if (view.intent != Intent::in_service) text += ", " + std::string(to_string(view.intent));
  if (entry.error) text += ", " + entry.error->to_text();
  if (view.in_flight) text += ", " + std::to_string(view.in_flight) + " in flight";
  if (const OptionalU64 bytes = view.memory_bytes_available()) text += ", " + bytes_text(*bytes) + " available";
  if (view.sample == SampleState::stale) text += ", stale";
  if (entry.sampled) {
    const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(now - view.sampled_at);
    text += ", " + std::to_string(age.count()) + " ms old";
  }
  return text;
}

Result<std::shared_ptr<PoolState>> make(PoolOptions options, std::span<const DeviceInfo> infos) {
  const Policy* policy = nullptr;
  if (options.custom_policy) {
    if (!options.custom_policy->choose) return wrong_option("the custom policy has no choose function");
  } else {
    const Result<const Policy*> named = policy_named(options.policy);
    if (!named) return named.error();
    policy = *named;
  }
  if (options.poll_period <= Duration::zero() || options.poll_deadline <= Duration::zero() ||
      options.stale_after <= Duration::zero())
    return wrong_option("the poll period, the poll deadline and the age limit must be positive");
  for (Duration* duration : {&options.poll_period, &options.poll_deadline, &options.stale_after})
    *duration = std::min<Duration>(*duration, for_ever);
  const bool has_capacity = options.capacity > 0;
  options.capacity = std::max(options.capacity, infos.size());
  if (!has_capacity || options.capacity > Board::capacity_max)
    return wrong_option("a pool holds between 1 and " + std::to_string(Board::capacity_max) + " devices");
  if (!options.clock) options.clock = &real_clock();
  std::optional<Error> ledger_error;
  if (options.machine_wide && !options.ledger && std::any_of(infos.begin(), infos.end(), is_of_the_machine)) {
    if (Result<std::shared_ptr<Ledger>> ledger = Ledger::open())
      options.ledger = *std::move(ledger);
    else if (ledger.error().code == ErrorCode::invalid_argument)
      return std::move(ledger).error();  // the ledger may be in another folder
    else
      ledger_error = std::move(ledger).error();
  }
  // In a forked child, the threads and claims belong to the parent, and nothing here can be waited
  // for.
  const auto close = [process = getpid()](PoolState* state) {
    if (getpid() != process) return;
    if (state->poller) state->poller->stop();
    state->board.close([state] { delete state; });
  };
  std::shared_ptr<PoolState> state(new PoolState(std::move(options), policy), close);
  state->ledger_error = std::move(ledger_error);
  return state;
}

// Fails with the error of any back end in `named`.
Result<std::shared_ptr<PoolState>> open_named(std::span<const std::shared_ptr<Backend>> backends,
                                              std::span<const std::string_view> named, PoolOptions options) {
  const Duration deadline = options.driver_deadline;
  if (deadline <= Duration::zero()) return wrong_option("the time to wait for a driver must be positive");
  Listing listing = list_devices(backends, deadline);
  for (const Listing::FailedBackend& failed : listing.failed) {
    if (std::find(named.begin(), named.end(), failed.backend) != named.end()) return failed.error;
  }
  if (listing.devices.empty()) {
    const char* const visible = std::getenv("BERTH_VISIBLE_DEVICES");
    std::string message = visible
                              ? "BERTH_VISIBLE_DEVICES='" + std::string(visible) + "' names no device of this machine"
                              : "no device was found";
    for (const Listing::FailedBackend& failed : listing.failed)
      message += (&failed == &listing.failed.front() ? " (" : "; ") + failed.backend + ": " + failed.error.message;
    if (!listing.failed.empty()) message += ")";
    const char* const action = visible ? "unset it, or name devices that berth devices lists without it"
                                       : "install a driver, or use the host back end";
    return Error{ErrorCode::no_device, std::move(message), action, {}, no_device};
  }
  if (!options.topology) options.topology = topology_of(backends, listing.devices, deadline);
  Result<std::shared_ptr<PoolState>> state = make(std::move(options), listing.devices);
  if (!state) return state;
  (*state)->failed_backends = std::move(listing.failed);
  auto opened = device::open_devices(backends, listing.devices, deadline);
  for (std::size_t i = 0; i < opened.size(); ++i) {
    Board& board = (*state)->board;
    const Result<std::size_t> slot = opened[i] ? board.join(*std::move(opened[i]))
                                               : board.join_unusable(listing.devices[i], std::move(opened[i]).error());
    if (!slot) return slot.error();
  }
  for (const std::string& name : listing.unknown) {
    DeviceInfo info;
    info.id = DeviceId(name);
    info.backend = "unknown";
    Error error{ErrorCode::not_found, "BERTH_VISIBLE_DEVICES names it, but no device of this machine has that id",
                "name devices that berth devices lists without this variable", name};
    static_cast<void>((*state)->board.join_unusable(info, std::move(error)));
  }
  (*state)->start();
  return state;
}

}  // namespace

pool::PoolState::PoolState(PoolOptions given, const Policy* named)
    : options(std::move(given)), policy(options.custom_policy ? &*options.custom_policy : named), board(options) {}

void pool::PoolState::start() {
  poller = std::make_unique<Poller>(board, options);
  board.on_device_failure([this](std::size_t slot) { poller->ask_soon(slot); });
}

bool pool::PoolState::await_first_poll() {
  if (!options.poll || first_poll_ended.load(std::memory_order_acquire)) return false;
  const bool ended = poller->wait_ready(Deadline::after(*options.clock, options.poll_deadline)).has_value();
  if (ended) first_poll_ended.store(true, std::memory_order_release);
  return true;
}

Result<Pool> Pool::open(std::vector<std::shared_ptr<Device>> devices, PoolOptions options) {
  if (devices.empty()) {
    return Error{
        ErrorCode::invalid_argument, "the list of devices is empty", "name at least one device", {}, invalid_value};
  }
  std::vector<DeviceInfo> infos;
  for (const std::shared_ptr<Device>& device : devices) {
    if (device) infos.push_back(device->info());
  }
  Result<std::shared_ptr<PoolState>> state = make(std::move(options), infos);
  if (!state) return std::move(state).error();
  for (std::shared_ptr<Device>& device : devices) {
    Result<std::size_t> slot = (*state)->board.join(std::move(device));
    if (slot) continue;
    Error error = std::move(slot).error();
    error.code = ErrorCode::invalid_argument;
    error.driver = invalid_value;
    return error;
  }
  (*state)->start();
  return Pool(*std::move(state));
}

Result<Pool> Pool::open_all(const BackendOptions& given, PoolOptions options) {
  const Result<BackendOptions> completed = with_environment(given);
  if (!completed) return completed.error();
  const BackendOptions& backends = *completed;
  std::vector<std::shared_ptr<Backend>> made;
  std::vector<std::string_view> named;
  for (const BackendEntry& entry : backend_list()) {
    if (entry.name == "simulated" && backends.simulated_file.empty()) continue;
    made.push_back(entry.make(backends));
    const bool cut = std::any_of(
        backends.partitions.begin(), backends.partitions.end(),
        [&](const PartitionRequest& request) { return request.device.starts_with(std::string(entry.name) + ":"); });
    if (entry.name == "simulated" || cut) named.push_back(entry.name);
  }
  return open_named(made, named, std::move(options)).transform([&](auto state) {
    state->backends = backends;
    return Pool(std::move(state));
  });
}

Result<Pool> Pool::open_backends(std::span<const std::shared_ptr<Backend>> backends, PoolOptions options) {
  std::vector<std::string_view> named;
  if (backends.size() == 1) named.push_back(backends.front()->name());
  return open_named(backends, named, std::move(options)).transform([](auto state) { return Pool(std::move(state)); });
}

std::size_t Pool::device_count() const noexcept { return state_->board.entries().size(); }

std::vector<std::shared_ptr<Device>> Pool::devices() const {
  std::vector<std::shared_ptr<Device>> found;
  for (Board::Entry& entry : state_->board.entries()) {
    if (entry.device && entry.view.health != Health::lost) found.push_back(std::move(entry.device));
  }
  return found;
}

Result<std::shared_ptr<Device>> Pool::device(const DeviceId& id) const {
  const Result<Board::Entry> entry = state_->board.entry(id);
  if (!entry) return entry.error();
  return usable(*entry);
}

Result<std::shared_ptr<Device>> Pool::device_at(std::size_t position) const {
  const std::vector<Board::Entry> entries = state_->board.entries();
  if (position < entries.size()) return usable(entries[position]);
  return Error{ErrorCode::invalid_argument,
               "position " + std::to_string(position) + " is beyond the " + std::to_string(entries.size()) +
                   " devices of the pool",
               "count from 0",
               {},
               invalid_value};
}

Result<std::shared_ptr<Device>> Pool::device_by_ordinal(int ordinal) const {
  for (const Board::Entry& entry : state_->board.entries()) {
    if (entry.info->ordinal == ordinal) return usable(entry);
  }
  return Error{ErrorCode::no_device,
               "no device of the pool has ordinal " + std::to_string(ordinal),
               "name devices by id; ordinals change",
               {},
               invalid_device};
}

Result<std::shared_ptr<Device>> Pool::next_device() const {
  static const Policy& round_robin = *find_policy("round_robin");
  const std::vector<Board::Entry> entries = state_->board.entries();
  std::vector<DeviceView> views;
  for (const Board::Entry& entry : entries) views.push_back(entry.view);
  const Decision decision = choose(round_robin, {}, views, state_->turn.fetch_add(1, std::memory_order_relaxed));
  if (!decision.winner) return none_usable(entries);
  return entries[*decision.winner].device;
}

Result<std::shared_ptr<Device>> Pool::best_available_device() const {
  state_->await_first_poll();
  const std::vector<Board::Entry> entries = state_->board.entries();
  const Board::Entry* best = nullptr;
  const auto bytes = [](const Board::Entry& entry) { return entry.view.memory_bytes_available().value_or(0); };
  for (const Board::Entry& entry : entries) {
    if (reject({}, entry.view)) continue;
    if (!best || bytes(entry) > bytes(*best) || (bytes(entry) == bytes(*best) && entry.info->id < best->info->id))
      best = &entry;
  }
  if (!best) return none_usable(entries);
  return best->device;
}

std::vector<DeviceStatus> Pool::status() const {
  const TimePoint now = clock().now();
  std::vector<DeviceStatus> all;
  for (Board::Entry& entry : state_->board.entries()) {
    DeviceStatus status{*entry.info, entry.view, std::move(entry.error), {}};
    if (entry.sampled) status.age = now - entry.view.sampled_at;
    all.push_back(std::move(status));
  }
  return all;
}

std::string Pool::to_text() const {
  const std::vector<Board::Entry> entries = state_->board.entries();
  std::string text = std::to_string(entries.size()) + (entries.size() == 1 ? " device" : " devices");
  for (const Board::Entry& entry : entries) text += "\n  " + line(entry, clock().now());
  // A driver that is not installed is not mentioned.
  for (const Listing::FailedBackend& failed : state_->failed_backends) {
    if (failed.error.code != ErrorCode::not_initialized) text += "\n  " + failed.error.to_text();
  }
  return text;
}

Result<Lease> Pool::acquire(const Requirements& requirements) const { return acquire(requirements, *state_->policy); }

Result<Lease> Pool::acquire(const Requirements& requirements, const Policy& policy) const {
  Result<Lease> lease = state_->board.acquire(policy, requirements);
  if (!lease && state_->await_first_poll()) lease = state_->board.acquire(policy, requirements);
  return lease;
}

Result<Lease> Pool::acquire(const Requirements& requirements, Deadline deadline) const {
  return state_->board.acquire(*state_->policy, requirements, deadline);
}

Result<std::vector<Lease>> Pool::acquire_group(const Requirements& requirements, std::size_t count) const {
  Result<std::vector<Lease>> leases = state_->board.acquire_group(*state_->policy, requirements, count);
  if (!leases && state_->await_first_poll()) leases = state_->board.acquire_group(*state_->policy, requirements, count);
  return leases;
}

Statistics Pool::statistics() const { return state_->board.statistics(); }
std::uint16_t Pool::work_class(std::string_view name) const { return state_->board.work_class(name); }

Explanation Pool::explain(const Requirements& requirements) const {
  Explanation explanation = state_->board.explain(*state_->policy, requirements);
  if (!explanation.winner && state_->await_first_poll())
    explanation = state_->board.explain(*state_->policy, requirements);
  return explanation;
}

Result<void> Pool::join(std::shared_ptr<Device> device) const {
  const Result<std::size_t> slot = state_->board.join(std::move(device));
  if (!slot) return slot.error();
  state_->first_poll_ended.store(false, std::memory_order_release);
  state_->poller->ask_new_devices();
  return {};
}

Result<void> Pool::leave(const DeviceId& id) const { return state_->board.leave(id); }
Result<void> Pool::set_intent(const DeviceId& id, Intent intent) const { return state_->board.set_intent(id, intent); }
Result<void> Pool::set_weight(const DeviceId& id, double weight) const { return state_->board.set_weight(id, weight); }

bool Pool::ready() const { return state_->poller->ready(); }
Result<void> Pool::wait_ready(Deadline deadline) const { return state_->poller->wait_ready(deadline); }
Result<void> Pool::report(const DeviceId& id, const LoadSample& sample) const {
  return state_->board.apply_report(id, sample, clock().now());
}
void Pool::poll_now() const { state_->poller->poll_now(); }

std::optional<Error> Pool::ledger_error() const {
  return state_->ledger_error ? state_->ledger_error : state_->board.ledger_error();
}

std::span<const Listing::FailedBackend> Pool::failed_backends() const noexcept { return state_->failed_backends; }
const Policy& Pool::policy() const noexcept { return *state_->policy; }
Clock& Pool::clock() const noexcept { return *state_->options.clock; }

std::uint64_t Pool::policy_errors() const noexcept { return state_->board.policy_errors(); }

}  // namespace berth
