// A program with a Pool, for tests of several programs on one machine. For each line "BYTES" of its input it requests
// that many bytes of the first GPU and keeps what it gets:
//   granted
//   refused CODE: MESSAGE
// The line "error" prints what keeps the pool out of the ledger, or "none"; "release" gives everything back.
#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "berth/pool.hpp"

int main() {
  using namespace berth;
  const std::vector<std::shared_ptr<Backend>> backends{make_backend("cuda").value()};
  PoolOptions options;
  options.poll_deadline = std::chrono::seconds(15);  // for a busy machine
  const Result<Pool> pool = Pool::open_backends(backends, options);
  if (!pool) {
    std::printf("%s\n", pool.error().to_text().c_str());
    return 1;
  }
  std::printf("open\n");
  std::fflush(stdout);
  std::vector<Lease> leases;
  for (std::string line; std::getline(std::cin, line); std::fflush(stdout)) {
    if (line == "error") {
      const std::optional<Error> error = pool->ledger_error();
      std::printf("%s\n", error ? error->to_text().c_str() : "none");
      continue;
    }
    if (line == "release") {
      leases.clear();
      std::printf("released\n");
      continue;
    }
    Requirements requirements;
    requirements.memory_bytes_min = std::stoull(line);
    Result<Lease> lease = pool->acquire(requirements);
    if (lease) {
      std::printf("granted\n");
      leases.push_back(*std::move(lease));
    } else {
      std::printf("refused %s: %s\n", std::string(to_string(lease.error().code)).c_str(),
                  lease.error().message.c_str());
    }
  }
}
