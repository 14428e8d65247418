#include "agent/output_sender.hpp"

#include <boost/json.hpp>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "agent/replica_job.hpp"
#include "format/json_reading.hpp"
#include "machine/job_output.hpp"

namespace berth::agent {

namespace json = boost::json;

namespace {

constexpr std::size_t readers_max = 16;                    // each needs a thread and a connection
constexpr std::size_t piece_bytes = 256 * 1024;            // a quarter of what the server keeps for one reader
constexpr std::chrono::milliseconds post_timeout{10'000};  // the server answers within 3 s in any case
constexpr std::chrono::milliseconds end_timeout{2'000};    // the agent may be about to end
constexpr Duration look_again = std::chrono::milliseconds(200);
// How long it may take to notice that a reader is gone while there is nothing to send.
constexpr Duration ask_again = std::chrono::seconds(2);

// Serves one request on its own thread.
class OutputSending {
 public:
  OutputSending(http::Client client, OutputRequest request, const OutputSender::Source& source, std::stop_token stop)
      : client_(std::move(client)), request_(std::move(request)), source_(source), stop_(std::move(stop)) {}

  void refuse(const std::string& reason) { post_last("refused", "node " + source_.node.text() + " " + reason); }

  void run() {
    std::string last;  // the last job that was sent
    while (true) {
      // Computed before the jobs are listed: once it is true, no further job is started.
      const bool is_last = !request_.follows || !source_.is_ordered(request_.key);
      const std::vector<machine::Job> jobs = jobs_after(last);
      const std::size_t skipped = request_.previous ? 1 : 0;
      if (skipped > 0 && jobs.size() <= skipped)
        return post_last("missing", "has not been started before on node " + source_.node.text());
      // Starts with the newest job, then continues in order.
      if (const machine::Job* const job = jobs.empty()   ? nullptr
                                          : last.empty() ? &jobs[jobs.size() - 1 - skipped]
                                                         : &jobs.front()) {
        if (!send(*job, last.empty())) break;
        last = job->id;
      } else if (is_last || !pause()) {
        break;
      }
      if (!request_.follows) break;
    }
    // Output that is cut off must not look complete.
    if (is_read_ && (request_.follows || !stop_.stop_requested())) post_last("end", "");
  }

 private:
  // The jobs of the replica after `last`, in order; all if `last` is empty.
  std::vector<machine::Job> jobs_after(const std::string& last) const {
    const auto number = [](const std::string& id) { return std::pair(id.size(), id); };
    std::vector<machine::Job> found;
    for (machine::Job& job : machine::list_jobs(source_.jobs)) {
      const auto replica = found_job(job, real_clock().now());
      if (replica && replica->key == request_.key && number(job.id) > number(last)) found.push_back(std::move(job));
    }
    return found;
  }

  bool is_live(const machine::Job& job) const {
    const Result<machine::Job> now = machine::find_job(source_.jobs, job.id);
    const auto replica = now ? found_job(*now, real_clock().now()) : std::nullopt;
    return replica && replica->is_live();
  }

  // Sends all output up to the end of the job if the request follows it, or else what exists now. Returns false if the
  // reader is gone or sending has been stopped.
  bool send(const machine::Job& job, bool is_first) {
    Result<machine::OutputReader> output = machine::OutputReader::open(job.output());
    // A job is listed a moment before it has a file for its output.
    while (!output && request_.follows && is_live(job)) {
      if (!pause()) return false;
      output = machine::OutputReader::open(job.output());
    }
    if (!output) return true;
    if (is_first && request_.tail > 0) output->skip_to_tail(request_.tail);
    while (true) {
      const bool is_whole = !request_.follows || !is_live(job);
      for (std::string piece; !(piece = output->read(piece_bytes)).empty();)
        if (!send(std::move(piece))) return false;
      if (is_whole) return true;
      if (!pause()) return false;
    }
  }

  // Returns when the reader has room for more, or false if it is gone or sending has been stopped.
  bool send(std::string piece) {
    sent_ = real_clock().now();
    while (!stop_.stop_requested()) {
      const Result<http::Response> answer = post("", std::exchange(piece, {}), post_timeout, stop_);
      const Taken taken = answer && answer->status == 200 ? taken_of(answer->body) : Taken{};
      is_read_ = taken.is_open;
      if (!taken.is_open || taken.has_room) return taken.is_open;
    }
    return false;
  }

  // Waits while there is no output, and checks from time to time whether the reader is still there.
  bool pause() {
    real_clock().sleep_for(look_again);
    if (real_clock().now() - sent_ > ask_again) return send(std::string());
    return !stop_.stop_requested();
  }

  struct Taken {
    bool is_open = false, has_room = true;
  };
  static Taken taken_of(const std::string& body) {
    const auto read = format::read_document(body, "the answer", [](const json::value& value, const std::string& where) {
      const json::object& object = format::object_of(value, where);
      return Taken{format::bool_of(format::member(object, "open", where), where),
                   format::optional_member(object, "room", where, format::bool_of).value_or(true)};
    });
    return read ? *read : Taken{};
  }

  Result<http::Response> post(const std::string& query, std::string body, std::chrono::milliseconds timeout,
                              const std::stop_token& stop) {
    return client_.request("POST", "/api/v1/agent/logs/" + request_.id + query, std::move(body),
                           {.headers = {{"content-type", "text/plain"}}, .timeout = timeout, .stop = stop});
  }

  // Also called when the agent ends. It does not matter whether the message arrives.
  void post_last(const std::string& what, std::string body) {
    static_cast<void>(post("?" + what + "=1", std::move(body), end_timeout, {}));
  }

  http::Client client_;
  const OutputRequest request_;
  const OutputSender::Source& source_;
  const std::stop_token stop_;
  bool is_read_ = true;
  TimePoint sent_{};  // unset at first, so that the server learns at once that sending has begun
};

}  // namespace

OutputSender::OutputSender(http::ClientOptions server, Source source)
    : server_(std::move(server)), source_(std::move(source)) {}

OutputSender::~OutputSender() {
  for (Sending& sending : sendings_) sending.thread.request_stop();
}

void OutputSender::start(OutputRequest request) {
  sendings_.remove_if([](const Sending& sending) { return sending.has_ended->load(); });
  const bool is_refused = sendings_.size() >= readers_max;
  const auto with_client = [this, request = std::move(request)](std::stop_token stop, const auto& act) {
    if (Result<http::Client> client = http::Client::create(server_))
      act(OutputSending(*std::move(client), request, source_, std::move(stop)));
  };
  auto has_ended = std::make_shared<std::atomic<bool>>(false);
  try {
    sendings_.push_back({has_ended, std::jthread([with_client, is_refused, has_ended](std::stop_token stop) {
                           with_client(std::move(stop), [&](OutputSending sending) {
                             if (!is_refused) return sending.run();
                             sending.refuse("already sends output to " + std::to_string(readers_max) + " readers");
                           });
                           has_ended->store(true);
                         })});
  } catch (const std::system_error& shortage) {
    with_client({}, [&](OutputSending sending) {
      sending.refuse(std::string("cannot start another thread to send it (") + shortage.code().message() + ")");
    });
  }
}

}  // namespace berth::agent
