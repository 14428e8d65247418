#include "agent/agent.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/json.hpp>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <fstream>
#include <mutex>
#include <thread>

#include "agent/last_epoch.hpp"
#include "agent/node_watch.hpp"
#include "agent/owner_rules.hpp"
#include "agent/prober.hpp"
#include "agent/replica_job.hpp"
#include "berth/random.hpp"
#include "deployment/command.hpp"
#include "format/fleet_json.hpp"
#include "machine/job_output.hpp"
#include "world/runtime_folder.hpp"
#include "world/user_name.hpp"
#include "world/wall_time.hpp"

namespace berth::agent {

namespace json = boost::json;
using format::LogLevel;

namespace {

constexpr Duration report_every = std::chrono::seconds(2);
constexpr Duration reports_apart = std::chrono::milliseconds(100);
constexpr Duration longest_sleep = std::chrono::milliseconds(250);
constexpr std::chrono::milliseconds report_timeout{4'000};
constexpr std::uint64_t poll_wait_s = 20;
constexpr Duration retry_max = std::chrono::seconds(5);
constexpr std::size_t readers_max = 16, piece_bytes = 256 * 1024;

// A flag that several threads set and one waits for. Shared with threads that may outlive the agent.
class Signal {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    is_set_ = true;
    condition_.notify_all();
  }
  // Until it is set, or `when`.
  void wait(TimePoint when) {
    std::unique_lock lock(mutex_);
    while (!is_set_ && real_clock().wait_until(condition_, lock, when)) {
    }
    is_set_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  bool is_set_ = false;
};

Error refusal(const http::Response& answer, const std::string& what) {
  if (answer.status == 401)
    return {ErrorCode::unavailable, what + ": it does not know the credential of this node",
            "join again: give a token of berth token add join with --token-file"};
  std::string message = "status " + std::to_string(answer.status), advice;
  boost::system::error_code failed;
  const json::value body = json::parse(answer.body, failed);
  if (!failed && body.is_object()) {
    if (const json::value* const error = body.as_object().if_contains("error"); error && error->is_object()) {
      const auto text = [&](const char* key) {
        const json::value* const value = error->as_object().if_contains(key);
        return value && value->is_string() ? std::string(value->as_string()) : std::string();
      };
      message = text("message");
      advice = text("advice");
    }
  }
  return {answer.status == 409 ? ErrorCode::already_exists : ErrorCode::unavailable, what + ": " + message, advice};
}

// What the server wants to read of a replica's output.
struct LogOrder {
  std::string id;
  fleet::ReplicaKey key;
  std::uint64_t tail = 0;
  bool follows = false;
};

class Agent {
 public:
  Agent(const AgentOptions& options, std::unique_ptr<NodeWatch> watch, std::string jobs)
      : options_(options), watch_(std::move(watch)), jobs_(std::move(jobs)) {
    rules_.devices = watch_->allowed();
    rules_.user = world::user_name(geteuid());
    if (options.file.users) rules_.users = *options.file.users;
    rules_.commands = options.file.commands;
    rules_.variables = options.file.variables;
    if (rules_.commands && !rules_.variables) rules_.variables.emplace();
    epoch_ = last_epoch(options.folder);
    id_ = "a-" + std::to_string(real_random().next()) + "-" + std::to_string(getpid());
  }

  void run(const std::stop_token& stop) {
    std::stop_source ends;
    const std::stop_callback forward(stop, [&] {
      ends.request_stop();
      wake_->set();
      report_due_->set();
    });
    std::thread receiver([&] { receive(ends.get_token()); });
    std::thread reporter([&] { report(ends.get_token()); });
    Prober prober([wake = wake_] { wake->set(); });
    while (!stop.stop_requested()) {
      const TimePoint next = look(prober);
      wake_->wait(std::min(next, real_clock().now() + longest_sleep));
    }
    ends.request_stop();
    report_due_->set();
    receiver.join();
    reporter.join();
    for (std::jthread& reader : readers_) reader.request_stop();
  }

 private:
  void log(LogLevel level, std::string message, format::LogFields fields = {}) const {
    if (options_.log) options_.log({level, std::move(message), std::move(fields)});
  }

  // One look at the jobs, one step, and what it says. Returns when to look again.
  TimePoint look(Prober& prober) {
    const TimePoint now = real_clock().now();
    std::map<std::string, machine::Job> by_id;
    std::vector<FoundJob> found;
    ReplicaLeases leases;
    for (machine::Job& job : machine::list_jobs(jobs_)) {
      std::optional<FoundJob> one = found_job(job, now);
      if (!one) continue;
      one->is_stopping = stopping_.contains(job.id);
      // Jobs are dated by the wall clock. What was seen once keeps its date when that is stepped.
      FirstSeen& seen = seen_.try_emplace(job.id, FirstSeen{one->state, one->since}).first->second;
      if (seen.state != one->state) seen = {one->state, one->since};
      one->since = seen.since;
      if (one->is_live()) {
        const auto lease = parse_lease(job.progress.lease);
        if (lease) leases.by_number[lease->id] = name_of(one->key);
        if (job.is_supervised) leases.by_holder[job.progress.supervisor.pid] = name_of(one->key);
      }
      found.push_back(*std::move(one));
      by_id.emplace(job.id, std::move(job));
    }
    Input input;
    input.jobs = found;
    input.probed = prober.answers();
    input.rules = &rules_;
    input.memory = memory_;
    input.now = now;
    std::optional<fleet::NodeOrders> orders;
    {
      const std::lock_guard lock(mutex_);
      orders = orders_;
      input.heard = heard_;
      input.newest = newest_;
    }
    input.orders = orders ? &*orders : nullptr;
    Step next = step(input);
    memory_ = std::move(next.memory);
    for (const Renewal& renewal : next.renew)
      static_cast<void>(machine::renew_job(by_id.at(renewal.job), now - renewal.heard));
    for (const Stop& stop : next.stop) {
      log(LogLevel::info, "stops a replica",
          {{"replica", by_id.at(stop.job).request.name}, {"job", stop.job}, {"reason", stop.reason}});
      stopping_.insert(stop.job);
      machine::request_stop(by_id.at(stop.job));
    }
    for (const std::string& job : next.remove) static_cast<void>(machine::remove_job(by_id.at(job)));
    std::erase_if(stopping_, [&](const std::string& job) { return !by_id.contains(job); });
    std::erase_if(seen_, [&](const auto& one) { return !by_id.contains(one.first); });
    for (const Start& one : next.start) start(one, found);
    watch_probes(prober, found, by_id, orders);
    share(std::move(next.reports), std::move(leases), orders);
    return next.look_again.value_or(now + longest_sleep);
  }

  void start(const Start& order, const std::vector<FoundJob>& found) {
    const fleet::ReplicaKey key = order.order.assigned.key();
    const auto fail = [&](const std::string& reason) {
      log(LogLevel::warning, "cannot start a replica", {{"replica", to_string(key)}, {"reason", reason}});
      start_failed(memory_, key, reason, real_clock().now());
      wake_->set();
    };
    if (std::optional<std::string> reason = leads_out(order.order.spec, rules_)) {
      memory_[key].refused = std::move(reason);
      return wake_->set();
    }
    std::optional<std::uint16_t> port;
    if (order.needs_port) {
      const auto is_used = [&](std::uint16_t one) {
        return std::any_of(found.begin(), found.end(), [&](const FoundJob& job) { return job.port == one; });
      };
      for (int tries = 0; tries < 100 && (!port || is_used(*port)); ++tries) port = free_port();
      if (!port) return fail("no port is free");
    }
    NodeObservation seen = watch_->observe({});
    const Result<machine::JobOrder> job = job_order(order, port, seen.node, options_.file, options_.backends);
    if (!job) return fail(job.error().to_text());
    const Result<machine::Job> started = machine::start_job(jobs_, *job);
    if (!started) return fail(started.error().to_text());
    log(LogLevel::info, "starts a replica", {{"replica", to_string(key)}, {"job", started->id}});
    wake_->set();
  }

  void watch_probes(Prober& prober, const std::vector<FoundJob>& found,
                    const std::map<std::string, machine::Job>& by_id,
                    const std::optional<fleet::NodeOrders>& orders) const {
    std::set<std::string> watched;
    for (const FoundJob& job : found) {
      if (job.state != FoundState::running || !orders) continue;
      const auto order = std::find_if(orders->orders.begin(), orders->orders.end(), [&](const auto& one) {
        return one.assigned.key() == job.key && !one.assigned.stopping;
      });
      if (order == orders->orders.end()) continue;
      if (forbidden(*order, rules_) || leads_out(order->spec, rules_)) continue;
      watched.insert(job.id);
      if (!prober.watches(job.id))
        prober.watch(job.id,
                     probing_of(*order, by_id.at(job.id), watch_->observe({}).node, options_.file, options_.backends));
    }
    prober.keep(watched);
  }

  void share(std::vector<fleet::ReplicaReport> reports, ReplicaLeases leases,
             const std::optional<fleet::NodeOrders>& orders) {
    const std::lock_guard lock(mutex_);
    const bool is_new = reports != reports_ || (orders && orders->revision != reported_revision_);
    reports_ = std::move(reports);
    leases_ = std::move(leases);
    if (orders) {
      reported_epoch_ = orders->epoch;
      reported_revision_ = orders->revision;
    }
    if (is_new) report_due_->set();
  }

  // On a thread of its own.
  void report(const std::stop_token& stop) {
    Result<http::Client> client = http::Client::create(options_.server);
    std::string problem;
    std::uint64_t number = 0;
    while (client && !stop.stop_requested()) {
      fleet::NodeReport report;
      report.number = ++number;
      ReplicaLeases leases;
      {
        const std::lock_guard lock(mutex_);
        report.replicas = reports_;
        report.epoch = reported_epoch_;
        report.revision = reported_revision_;
        leases = leases_;
      }
      NodeObservation seen = watch_->observe(leases);
      report.node = std::move(seen.node);
      report.devices_json = std::move(seen.devices_json);
      report.leases_json = std::move(seen.leases_json);
      report.agent = id_;
      report.version = options_.version;
      report.boot = machine::boot_id();
      report.now_ms = world::wall_time_ms();
      const TimePoint sent = real_clock().now();
      const Result<http::Response> answer =
          client->request("POST", "/api/v1/agent/report", format::document(format::to_json(report)),
                          {.headers = {{"content-type", "application/json"}}, .timeout = report_timeout, .stop = stop});
      std::string now;
      if (!answer)
        now = answer.error().message;
      else if (answer->status != 200)
        now = refusal(*answer, "the server does not take the report").to_text();
      else if (const auto newest = newest_in(answer->body)) {
        if (is_newest(newest->first)) {
          const std::lock_guard lock(mutex_);
          heard_ = sent;
          newest_ = *newest;
        } else {
          now =
              "the server is of epoch " + std::to_string(newest->first) + ", and one of a later epoch was heard before";
        }
      }
      if (now != problem && !stop.stop_requested()) {
        if (now.empty())
          log(LogLevel::info, "is heard again", {{"server", client->url()}});
        else
          log(LogLevel::warning, "is not heard", {{"server", client->url()}, {"reason", now}});
      }
      problem = now;
      const Duration pause = now.empty() ? report_every : std::min<Duration>(report_every, std::chrono::seconds(1));
      real_clock().sleep_for(reports_apart);
      report_due_->wait(sent + pause);
    }
  }

  // Whether no server of a later epoch was heard, which is written down first. With a full disk it is obeyed all the
  // same: what replaced it is not known to exist.
  bool is_newest(std::uint64_t epoch) {
    const std::lock_guard lock(mutex_);
    if (epoch > epoch_) {
      if (const auto kept = keep_epoch(options_.folder, epoch); !kept)
        log(LogLevel::warning, "cannot write down the epoch of its server", {{"reason", kept.error().to_text()}});
      epoch_ = epoch;
    }
    return epoch == epoch_;
  }

  // Epoch and revision of the server's newest orders.
  static std::optional<std::pair<std::uint64_t, std::uint64_t>> newest_in(const std::string& body) {
    const auto read = format::read_document(body, "the answer", [](const json::value& value, const std::string& where) {
      const auto number = [&](const char* key) {
        return format::whole_of(format::member(format::object_of(value, where), key, where), where + "." + key);
      };
      return std::pair(number("epoch"), number("revision"));
    });
    return read ? std::optional(*read) : std::nullopt;
  }

  // On a thread of its own.
  void receive(const std::stop_token& stop) {
    Result<http::Client> client = http::Client::create(options_.server);
    Duration pause = std::chrono::milliseconds(200);
    while (client && !stop.stop_requested()) {
      std::uint64_t epoch = 0, revision = 0;
      {
        const std::lock_guard lock(mutex_);
        if (orders_) epoch = orders_->epoch, revision = orders_->revision;
      }
      const Result<http::Response> answer =
          client->request("GET",
                          "/api/v1/agent/assignments?epoch=" + std::to_string(epoch) +
                              "&revision=" + std::to_string(revision) + "&wait_s=" + std::to_string(poll_wait_s),
                          {}, {.timeout = std::chrono::seconds(poll_wait_s + 5), .stop = stop});
      if (answer && answer->status == 200 && take_orders(answer->body)) {
        pause = std::chrono::milliseconds(200);
        continue;
      }
      if (stop.stop_requested()) return;
      real_clock().sleep_for(pause);
      pause = std::min(retry_max, pause * 2);
    }
  }

  bool take_orders(const std::string& body) {
    std::vector<LogOrder> logs;
    auto orders = format::read_document(body, "the orders", [&](const json::value& value, const std::string& where) {
      if (const json::value* const list = format::object_of(value, where).if_contains("logs")) {
        for (const json::value& one : format::array_of(*list, where + ".logs")) {
          const json::object& log = format::object_of(one, where + ".logs");
          const auto number = [&](const char* key) {
            return format::whole_of(format::member(log, key, where), where + "." + key);
          };
          logs.push_back({format::text_of(format::member(log, "id", where), where + ".id"),
                          {DeploymentId(format::text_of(format::member(log, "deployment", where), where)),
                           static_cast<std::uint32_t>(number("replica")), number("generation")},
                          number("tail"),
                          format::bool_of(format::member(log, "follow", where), where)});
        }
      }
      return format::node_orders_of(value, where);
    });
    if (!orders) {
      log(LogLevel::error, "cannot read the orders", {{"reason", orders.error().to_text()}});
      return false;
    }
    if (!is_newest(orders->epoch)) return false;
    {
      const std::lock_guard lock(mutex_);
      if (accept(orders_, *std::move(orders), epoch_)) wake_->set();
    }
    for (LogOrder& order : logs) send_output(std::move(order));
    return true;
  }

  // Each reader on a thread of its own. On the receiver's thread.
  void send_output(LogOrder order) {
    if (readers_.size() >= readers_max) readers_.pop_front();  // waits for the oldest, which is told to end
    readers_.emplace_back([this, order = std::move(order)](const std::stop_token& stop) {
      Result<http::Client> client = http::Client::create(options_.server);
      if (!client) return;
      const auto send = [&](std::string piece, bool ends) {
        const auto answer =
            client->request("POST", "/api/v1/agent/logs/" + order.id + (ends ? "?end=1" : ""), std::move(piece),
                            {.headers = {{"content-type", "text/plain"}}, .timeout = report_timeout, .stop = stop});
        return answer && answer->status == 200 && answer->body.find("\"open\":true") != std::string::npos;
      };
      std::string path;
      for (const machine::Job& job : machine::list_jobs(jobs_)) {
        const auto found = found_job(job, real_clock().now());
        if (found && found->key == order.key) path = job.output();
      }
      // The folder may be another user's: nothing but a file of that name is read.
      const Result<int> output = machine::open_for_reading(path);
      std::ifstream file(output ? "/proc/self/fd/" + std::to_string(*output) : "", std::ios::binary);
      if (output) ::close(*output);
      if (order.tail > 0 && file) skip_to_tail(file, order.tail);
      std::string piece(piece_bytes, '\0');
      TimePoint last = real_clock().now();
      while (!stop.stop_requested()) {
        file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
        const auto got = static_cast<std::size_t>(std::max<std::streamsize>(0, file.gcount()));
        if (got > 0) {
          if (!send(piece.substr(0, got), false)) return;
          last = real_clock().now();
          if (!file.eof()) continue;
        }
        if (!order.follows) break;
        file.clear();
        real_clock().sleep_for(std::chrono::milliseconds(200));
        // Asks from time to time whether somebody still reads.
        if (real_clock().now() - last > std::chrono::seconds(10)) {
          if (!send("", false)) return;
          last = real_clock().now();
        }
      }
      send("", true);
    });
  }

  static void skip_to_tail(std::ifstream& file, std::uint64_t lines) {
    file.seekg(0, std::ios::end);
    std::streamoff at = file.tellg();
    std::uint64_t seen = 0;
    std::string block(64 * 1024, '\0');
    const std::streamoff end = at;
    while (at > 0) {
      const std::streamoff begin = std::max<std::streamoff>(0, at - static_cast<std::streamoff>(block.size()));
      file.seekg(begin);
      file.read(block.data(), at - begin);
      for (std::streamoff i = at - begin; i > 0; --i) {
        if (block[static_cast<std::size_t>(i - 1)] != '\n' || begin + i == end) continue;
        if (++seen == lines) {
          file.clear();
          file.seekg(begin + i);
          return;
        }
      }
      at = begin;
    }
    file.clear();
    file.seekg(0);
  }

  const AgentOptions& options_;
  std::unique_ptr<NodeWatch> watch_;
  const std::string jobs_;
  Rules rules_;
  std::string id_;
  Memory memory_;
  std::set<std::string> stopping_;  // jobs that were told to end
  struct FirstSeen {
    FoundState state{};
    TimePoint since{};
  };
  std::map<std::string, FirstSeen> seen_;  // by job
  std::deque<std::jthread> readers_;
  std::shared_ptr<Signal> wake_ = std::make_shared<Signal>(), report_due_ = std::make_shared<Signal>();

  std::mutex mutex_;  // guards what follows
  std::optional<fleet::NodeOrders> orders_;
  std::optional<TimePoint> heard_;
  std::pair<std::uint64_t, std::uint64_t> newest_{};
  std::uint64_t epoch_ = 0;
  std::vector<fleet::ReplicaReport> reports_;
  ReplicaLeases leases_;
  std::uint64_t reported_epoch_ = 0, reported_revision_ = 0;
};

}  // namespace

Result<std::string> join(const http::ClientOptions& server, const std::string& token_file, const NodeId& node,
                         const std::string& version) {
  http::Client client = BERTH_TRY(http::Client::create(server));
  const http::Response answer = BERTH_TRY(
      client.request("POST", "/api/v1/agent/join", format::document({{"node", node.text()}, {"version", version}}),
                     {.headers = {{"content-type", "application/json"}}}));
  const std::string refused = "the server does not let " + node.text() + " join";
  if (answer.status == 401)
    return Error{ErrorCode::unavailable, refused + ": the token in " + token_file + " is wrong, used or expired",
                 "berth token add join prints another"};
  if (answer.status != 200) return refusal(answer, refused);
  return format::read_document(answer.body, "the answer", [](const json::value& value, const std::string& where) {
    return format::text_of(format::member(format::object_of(value, where), "token", where), where + ".token");
  });
}

Result<void> run_agent(const AgentOptions& options, const std::stop_token& stop) {
  const std::string jobs = BERTH_TRY(job_folder(options.folder, options.file));
  std::signal(SIGPIPE, SIG_IGN);  // the other end of a pipe may be a command that ended at once
  std::unique_ptr<NodeWatch> watch = BERTH_TRY(NodeWatch::open(options.node, options.file, options.backends));
  if (options.log) {
    std::string devices;
    const NodeView node = watch->observe({}).node;
    for (const NodeDevice& device : node.devices) {
      if (watch->allowed() ? watch->allowed()->contains(device.info.id) : device.is_gpu())
        devices += (devices.empty() ? "" : ",") + device.info.id.text();
    }
    options.log({LogLevel::info,
                 "starts",
                 {{"node", options.node.text()},
                  {"server", options.server.url},
                  {"devices", devices},
                  {"version", options.version}}});
    for (const std::string& name : watch->unknown_names())
      options.log(
          {LogLevel::warning, "the agent's file names a device that this machine does not have", {{"device", name}}});
  }
  Agent(options, std::move(watch), jobs).run(stop);
  return {};
}

}  // namespace berth::agent
