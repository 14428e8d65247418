#include "agent/server_link.hpp"

#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>

#include "agent/identity.hpp"
#include "agent/last_epoch.hpp"
#include "agent/step.hpp"
#include "berth/random.hpp"
#include "fleet_format/fleet_json.hpp"
#include "machine/job_store.hpp"
#include "world/files.hpp"
#include "world/wall_time.hpp"

namespace berth::agent {

namespace json = boost::json;
using format::LogLevel;

namespace {

constexpr Duration report_every = std::chrono::seconds(2);
constexpr Duration reports_apart = std::chrono::milliseconds(100);
constexpr std::chrono::milliseconds report_timeout{4'000};
constexpr std::uint64_t poll_wait_s = 20;
constexpr Duration retry_max = std::chrono::seconds(5);

// Epoch and number of the server's newest orders, and this node's address as the server sees it.
struct ReportAnswer {
  std::pair<std::uint64_t, std::uint64_t> newest{};
  std::string address;
};
std::optional<ReportAnswer> report_answer_in(const std::string& body) {
  const auto read = format::read_document(body, "the answer", [](const json::value& value, const std::string& where) {
    const auto number = [&](const char* key) {
      return format::whole_of(format::member(format::object_of(value, where), key, where), where + "." + key);
    };
    return ReportAnswer{
        {number("epoch"), number("revision")},
        format::optional_member(format::object_of(value, where), "address", where, format::text_of).value_or("")};
  });
  return read ? std::optional(*read) : std::nullopt;
}

OutputRequest output_request_of(const json::value& value, const std::string& where) {
  const json::object& object = format::object_of(value, where);
  const auto number = [&](const char* key) {
    return format::whole_of(format::member(object, key, where), where + "." + key);
  };
  const auto text = [&](const char* key) {
    return format::text_of(format::member(object, key, where), where + "." + key);
  };
  return {text("id"),
          {DeploymentId(text("deployment")), static_cast<std::uint32_t>(number("replica")), number("generation")},
          number("tail"),
          format::bool_of(format::member(object, "follow", where), where + ".follow"),
          format::optional_member(object, "previous", where, format::bool_of).value_or(false)};
}

}  // namespace

std::string problem_file(const std::string& folder) { return folder + "/no_server"; }

void note_problem(const std::string& folder, const std::string& problem) {
  if (problem.empty())
    ::unlink(problem_file(folder).c_str());
  else
    static_cast<void>(world::write_private_text(problem_file(folder),
                                                world::utc_text(world::wall_time_us()) + "\n" + problem + "\n"));
}

ServerLink::ServerLink(const AgentOptions& options, NodeWatch& watch, const std::string& jobs,
                       std::function<void()> on_orders)
    : options_(options),
      watch_(watch),
      on_orders_(std::move(on_orders)),
      started_(real_clock().now()),
      id_("a-" + std::to_string(real_random().next()) + "-" + std::to_string(getpid())),
      epoch_(last_epoch(options.folder)),
      sender_(options.server, {options.node, jobs, [this](const fleet::ReplicaKey& key) { return is_ordered(key); }}),
      receiver_([this](const std::stop_token& stop) { receive(stop); }),
      reporter_([this](const std::stop_token& stop) { report(stop); }) {}

void ServerLink::log(LogLevel level, std::string message, format::LogFields fields) const {
  if (options_.log) options_.log({level, std::move(message), std::move(fields)});
}

ServerLink::Received ServerLink::received() const {
  const std::lock_guard lock(mutex_);
  return received_;
}

bool ServerLink::is_ordered(const fleet::ReplicaKey& key) const {
  const std::lock_guard lock(mutex_);
  return received_.orders && std::any_of(received_.orders->orders.begin(), received_.orders->orders.end(),
                                         [&](const fleet::ReplicaOrder& order) {
                                           return order.assigned.key() == key && !order.assigned.stopping;
                                         });
}

void ServerLink::share(std::vector<fleet::ReplicaReport> reports, ReplicaLeases leases,
                       const std::optional<fleet::NodeOrders>& orders, std::string problem) {
  const std::lock_guard lock(mutex_);
  const bool is_new = reports != reports_ || problem != problem_ || (orders && orders->number != reported_number_);
  reports_ = std::move(reports);
  problem_ = std::move(problem);
  leases_ = std::move(leases);
  if (orders) {
    reported_epoch_ = orders->epoch;
    reported_number_ = orders->number;
  }
  if (is_new) report_due_.set();
}

void ServerLink::report(const std::stop_token& stop) {
  Result<http::Client> client = http::Client::create(options_.server);
  const std::stop_callback wake(stop, [this] { report_due_.set(); });
  note_problem(options_.folder, "");
  std::string problem;
  while (client && !stop.stop_requested()) {
    const TimePoint began = real_clock().now();
    renew(*client);
    const std::string now = report_once(*client, stop);
    if (now != problem && !stop.stop_requested()) {
      if (now.empty())
        log(LogLevel::info, "the agent is connected to the server again", {{"server", client->url()}});
      else
        log(LogLevel::warning, "the agent has no server that it may follow",
            {{"server", client->url()}, {"reason", now}});
    }
    if (now != problem && !stop.stop_requested()) note_problem(options_.folder, now);
    problem = now;
    const Duration pause = now.empty() ? report_every : std::min<Duration>(report_every, std::chrono::seconds(1));
    real_clock().sleep_for(reports_apart);
    report_due_.wait(began + pause);
  }
}

// An open connection keeps the certificate that it started with.
void ServerLink::renew(http::Client& client) {
  const Result<bool> renewed = renew_certificate(client, options_.server);
  if (renewed && *renewed) {
    log(LogLevel::info, "the agent has renewed the certificate of its node");
    reconnect(client);
  }
  const std::string problem = renewed ? "" : renewed.error().to_text();
  if (!problem.empty() && problem != renewal_problem_)
    log(LogLevel::warning, "the agent cannot renew the certificate of its node", {{"reason", problem}});
  renewal_problem_ = problem;
}

void ServerLink::reconnect(http::Client& client) const {
  if (Result<http::Client> made = http::Client::create(options_.server)) client = *std::move(made);
}

// Returns what went wrong, or an empty text if the server has accepted the report.
std::string ServerLink::report_once(http::Client& client, const std::stop_token& stop) {
  fleet::NodeReport report;
  report.number = ++reports_made_;
  ReplicaLeases leases;
  {
    const std::lock_guard lock(mutex_);
    report.replicas = reports_;
    report.problem = problem_;
    report.epoch = reported_epoch_;
    report.orders_number = reported_number_;
    report.epoch_seen = epoch_;
    leases = leases_;
  }
  NodeObservation seen = watch_.observe(leases);
  report.node = std::move(seen.node);
  report.devices = std::move(seen.devices);
  report.leases = std::move(seen.leases);
  report.agent = id_;
  report.agent_start_monotonic_ms = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(started_.time_since_epoch()).count());
  report.version = options_.version;
  report.boot = machine::boot_id();
  report.now_ms = world::wall_time_ms();
  const TimePoint sent = real_clock().now();
  const Result<http::Response> answer =
      client.request("POST", "/api/v1/agent/report", format::document(format::to_json(report)),
                     {.headers = {{"content-type", "application/json"}}, .timeout = report_timeout, .stop = stop});
  if (!answer) return answer.error().to_text();
  if (answer->status == 401) reconnect(client);  // the certificate of this connection may have expired
  if (answer->status != 200) return refusal_of(*answer, "the server refused the report").to_text();
  const auto taken = report_answer_in(answer->body);
  if (!taken) return "";
  if (!is_newest(taken->newest.first))
    return "the server's epoch (" + std::to_string(taken->newest.first) +
           ") is lower than that of a server that this node has followed, so its store is probably outdated; berth "
           "status on the server's machine shows what to do";
  const std::lock_guard lock(mutex_);
  received_.report_sent_at = sent;
  received_.newest = taken->newest;
  received_.address = taken->address;
  return "";
}

// Whether this server has the highest epoch seen so far. The epoch is saved first. If the disk is full, the server is
// obeyed anyway, because no newer one is known.
bool ServerLink::is_newest(std::uint64_t epoch) {
  const std::lock_guard lock(mutex_);
  if (epoch > epoch_) {
    if (const auto kept = keep_epoch(options_.folder, epoch); !kept)
      log(LogLevel::warning, "the agent cannot save the epoch of its server", {{"reason", kept.error().to_text()}});
    epoch_ = epoch;
  }
  return epoch == epoch_;
}

void ServerLink::receive(const std::stop_token& stop) {
  Result<http::Client> client = http::Client::create(options_.server);
  Duration pause = std::chrono::milliseconds(200);
  while (client && !stop.stop_requested()) {
    std::uint64_t epoch = 0, number = 0;
    {
      const std::lock_guard lock(mutex_);
      if (received_.orders) epoch = received_.orders->epoch, number = received_.orders->number;
    }
    const Result<http::Response> answer =
        client->request("GET",
                        "/api/v1/agent/assignments?epoch=" + std::to_string(epoch) +
                            "&revision=" + std::to_string(number) + "&wait_s=" + std::to_string(poll_wait_s),
                        {}, {.timeout = std::chrono::seconds(poll_wait_s + 5), .stop = stop});
    if (answer && answer->status == 200 && take_orders(answer->body)) {
      pause = std::chrono::milliseconds(200);
      continue;
    }
    if (stop.stop_requested()) return;
    if (answer && answer->status == 401) reconnect(*client);
    real_clock().sleep_for(pause);
    pause = std::min(retry_max, pause * 2);
  }
}

bool ServerLink::take_orders(const std::string& body) {
  std::vector<OutputRequest> requests;
  auto orders = format::read_document(body, "the orders", [&](const json::value& value, const std::string& where) {
    if (const json::value* const list = format::object_of(value, where).if_contains("logs"))
      for (const json::value& request : format::array_of(*list, where + ".logs"))
        requests.push_back(output_request_of(request, where + ".logs"));
    return format::node_orders_of(value, where);
  });
  if (!orders) {
    log(LogLevel::error, "the agent cannot read its orders", {{"reason", orders.error().to_text()}});
    return false;
  }
  if (!is_newest(orders->epoch)) return false;
  bool is_new = false;
  {
    const std::lock_guard lock(mutex_);
    is_new = accept(received_.orders, *std::move(orders), epoch_);
  }
  if (is_new) on_orders_();
  for (OutputRequest& request : requests) sender_.start(std::move(request));
  return true;
}

}  // namespace berth::agent
