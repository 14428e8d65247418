// For tests: a server with scripted answers, and the verbs as functions whose output is captured.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cli/server_access.hpp"
#include "http/server.hpp"

namespace berth::cli {

inline http::Response ok_answer(std::string body) { return http::json_response(200, std::move(body)); }

struct Outcome {
  int status = 0;
  std::string out, err;
};
inline Outcome outcome_of(const std::function<int()>& verb) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Outcome outcome;
  outcome.status = verb();
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.err = testing::internal::GetCapturedStderr();
  return outcome;
}

// Parses and runs the words of a command line.
template <class... Add>
Outcome run_words(std::vector<std::string> words, Add... add) {
  words.insert(words.begin(), "berth");
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  void (*const verbs[])(const Verb&) = {add...};
  return outcome_of([&] { return run_command_line(pointers, "test", verbs); });
}

class TestServer {
 public:
  // "GET /api/v1/nodes" and its answer. Any other request gets a 404. Several answers are given one after another,
  // and the last one is repeated.
  using Answers = std::map<std::string, std::vector<http::Response>>;
  explicit TestServer(Answers answers, const std::string& address = "127.0.0.1:0")
      : answers_(std::move(answers)), server_({}, [this](http::Request request, const http::Responder& responder) {
          responder.send(answer(std::move(request)));
        }) {
    address_ = *server_.listen(address);
    thread_ = std::thread([this] { server_.run(); });
  }
  ~TestServer() {
    server_.shutdown(std::chrono::seconds(1));
    thread_.join();
  }

  std::string url() const { return address_.starts_with("unix:") ? address_ : "http://" + address_; }
  ServerArguments arguments(bool json = false) const { return {.server = url(), .json = json}; }
  std::vector<http::Request> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  http::Response answer(http::Request request) {
    const std::lock_guard lock(mutex_);
    const auto at = answers_.find(request.method + " " + request.path);
    requests_.push_back(std::move(request));
    if (at == answers_.end())
      return http::error_response(404, "not_found", "there is no such thing", "look for another");
    http::Response response = at->second.front();
    if (at->second.size() > 1) at->second.erase(at->second.begin());
    return response;
  }

  mutable std::mutex mutex_;  // guards requests_ and answers_
  std::vector<http::Request> requests_;
  Answers answers_;
  http::Server server_;
  std::string address_;
  std::thread thread_;
};

}  // namespace berth::cli
