#include "berth/ledger.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <utility>

#include "pool/ledger_layout.hpp"
#include "pool/ledger_row.hpp"
#include "world/runtime_folder.hpp"

namespace berth {

namespace layout = ledger_layout;

namespace {

constexpr const char* file_name = "ledger";

std::uint64_t load(const std::uint64_t& word) { return __atomic_load_n(&word, __ATOMIC_SEQ_CST); }
void store(std::uint64_t& word, std::uint64_t value) { __atomic_store_n(&word, value, __ATOMIC_SEQ_CST); }

std::string words_of(int error) { return std::generic_category().message(error); }

Error broken(const std::filesystem::path& path, const std::string& what) {
  return {ErrorCode::invalid_argument,
          path.native() + " is not a ledger Berth can use: " + what,
          "when no program that uses Berth is running, remove it: rm " + path.native(),
          {},
          {}};
}

Error failed(const std::filesystem::path& path, const std::string& what, int error) {
  std::string advice = "set BERTH_RUNTIME_DIR to a folder of your own";
  if (error == ENOSPC || error == EDQUOT) advice = "free some room there, or " + advice;
  return {ErrorCode::io, "cannot " + what + " " + path.native() + ": " + words_of(error), advice, {}, {}};
}

// A name no other boot of this machine has; empty where the kernel does not say.
std::string boot_name() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string name;
  std::getline(file, name);
  return name;
}

template <std::size_t N>
std::string text_of(const std::array<char, N>& text) {
  return {text.data(), strnlen(text.data(), N)};
}

template <std::size_t N>
void set_text(std::array<char, N>& to, std::string_view text) {
  to.fill(0);
  std::copy_n(text.begin(), std::min(text.size(), N - 1), to.begin());
}

layout::Holder to_layout(const Holder& holder) { return {holder.pid, holder.start_time, holder.pid_namespace}; }

TimePoint to_time(std::uint64_t ns) {
  constexpr auto latest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  return TimePoint(Duration(static_cast<std::int64_t>(std::min(ns, latest))));
}
std::uint64_t to_ns(TimePoint time) { return static_cast<std::uint64_t>(time.time_since_epoch().count()); }
std::uint64_t to_ns(const std::optional<TimePoint>& time) {
  return time ? std::max<std::uint64_t>(1, to_ns(*time)) : 0;
}
std::optional<TimePoint> to_optional(std::uint64_t ns) { return ns == 0 ? std::nullopt : std::optional(to_time(ns)); }

bool is_kind(std::uint64_t kind) {
  return kind >= static_cast<std::uint64_t>(EntryState::reserved) &&
         kind <= static_cast<std::uint64_t>(EntryState::waiting);
}

std::uint64_t saturated(std::uint64_t a, std::uint64_t b) {
  return a > std::numeric_limits<std::uint64_t>::max() - b ? std::numeric_limits<std::uint64_t>::max() : a + b;
}

}  // namespace

struct Ledger::Mapping {
  int descriptor = -1;
  layout::File* file = nullptr;

  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (file) munmap(file, sizeof(layout::File));
    if (descriptor >= 0) close(descriptor);
  }

  std::size_t used() const { return std::min<std::uint64_t>(load(file->header.entries_used), layout::entries_max); }

  // Null: the entry is free, or what it says is not a state.
  static std::optional<EntryState> state_of(const layout::Entry& entry) {
    const std::uint64_t kind = load(entry.state) & layout::kind_mask;
    return is_kind(kind) ? std::optional(static_cast<EntryState>(kind)) : std::nullopt;
  }

  std::size_t home_of(std::uint64_t device) const {
    return device < layout::devices_max ? load(file->devices[device].home) : layout::devices_max;
  }

  // Bytes promised in one memory domain by all entries but number `except` and
  // the one of this id.
  std::uint64_t promised(std::size_t home, std::size_t except, std::uint64_t except_id = 0) const {
    std::uint64_t sum = 0;
    const std::size_t count = used();
    for (std::size_t i = 0; i < count; ++i) {
      const layout::Entry& entry = file->entries[i];
      if (i == except || (except_id != 0 && load(entry.state) >> layout::id_shift == except_id)) continue;
      const auto state = state_of(entry);
      if (!state || *state == EntryState::waiting) continue;
      const std::size_t claims = std::min<std::uint64_t>(load(entry.claim_count), layout::claims_max);
      for (std::size_t c = 0; c < claims; ++c) {
        if (home_of(load(entry.claims[c].device)) == home) sum = saturated(sum, load(entry.claims[c].bytes));
      }
    }
    return sum;
  }

  void changed() {
    __atomic_fetch_add(&file->header.changes, 1, __ATOMIC_SEQ_CST);
    wake();
  }
  void wake() { syscall(SYS_futex, sleep_word(), FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0); }
  std::uint32_t* sleep_word() {
    // The half of the word that moves with each change.
    auto* half = reinterpret_cast<std::uint32_t*>(&file->header.changes);
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? half : half + 1;
  }

  // The lock is held.
  void free_entry(std::size_t i) {
    const bool held = state_of(file->entries[i]) != EntryState::waiting;
    store(file->entries[i].state, 0);
    std::size_t count = used();
    while (count > 0 && load(file->entries[count - 1].state) == 0) --count;
    store(file->header.entries_used, count);
    if (held) __atomic_fetch_add(&file->header.ended, 1, __ATOMIC_SEQ_CST);
    held ? changed() : wake();
  }

  std::optional<std::size_t> find_entry(std::uint64_t id) const {
    for (std::size_t i = 0; i < used(); ++i) {
      const std::uint64_t state = load(file->entries[i].state);
      if (state != 0 && state >> layout::id_shift == id) return i;
    }
    return std::nullopt;
  }

  std::optional<std::size_t> find_device(std::string_view id) const {
    for (std::size_t i = 0; i < layout::devices_max; ++i) {
      const layout::Device& row = file->devices[i];
      if (load(row.ready) == 0) return std::nullopt;
      if (text_of(row.id) == id) return i;
    }
    return std::nullopt;
  }

  Result<std::size_t> place_device(const std::string& id, const std::string& domain) {
    if (id.empty() || id.size() >= sizeof(layout::Device::id))
      return Error{ErrorCode::invalid_argument, "\"" + id + "\" is no device id the ledger can hold", {}, {}, {}};
    const std::optional<std::size_t> found = find_device(id);
    std::size_t home = layout::devices_max;
    if (!domain.empty() && domain != id) {
      const Result<std::size_t> placed = place_device(domain, {});
      if (!placed) return placed;
      home = *placed;
    }
    if (found) {
      // Placed by somebody who knew its id alone, to cordon it perhaps.
      if (home != layout::devices_max && load(file->devices[*found].home) == *found)
        store(file->devices[*found].home, home);
      return *found;
    }
    for (std::size_t i = 0; i < layout::devices_max; ++i) {
      layout::Device& row = file->devices[i];
      if (load(row.ready) != 0) continue;
      set_text(row.id, id);
      store(row.home, home == layout::devices_max ? i : home);
      store(row.intent, 0);
      store(row.ready, 1);
      return i;
    }
    return Error{ErrorCode::queue_full,
                 "the ledger knows as many devices as it can",
                 "remove it when no program that uses Berth is running",
                 {},
                 {}};
  }
};

Ledger::Ledger(std::filesystem::path path, Clock& clock, std::unique_ptr<Mapping> mapping)
    : path_(std::move(path)), clock_(&clock), mapping_(std::move(mapping)) {}

Ledger::~Ledger() = default;

namespace {

// Made whole under another name first: whoever finds the file finds all of it.
Result<void> create(const std::filesystem::path& folder, const std::filesystem::path& path) {
  struct stat about {};
  if (stat(folder.c_str(), &about) != 0) return failed(folder, "look at", errno);
  // Whoever may write the folder is meant to share the ledger.
  const mode_t mode = 0600 | (about.st_mode & 0020 ? 0060 : 0) | (about.st_mode & 0002 ? 0006 : 0);
  const int made = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
  std::string temporary;
  int descriptor = made;
  if (made < 0) {
    temporary = path.native() + "." + std::to_string(getpid());
    ::unlink(temporary.c_str());
    descriptor = ::open(temporary.c_str(), O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR | O_CLOEXEC, mode);
    if (descriptor < 0) return failed(path, "create", errno);
  }
  const auto end = [&](Result<void> result) {
    if (!temporary.empty()) ::unlink(temporary.c_str());
    ::close(descriptor);
    return result;
  };
  fchmod(descriptor, mode);
  // Room for all of it now: a full folder must not surprise a later write.
  if (const int error = posix_fallocate(descriptor, 0, sizeof(layout::File)); error != 0)
    return end(failed(path, "make room for", error));
  layout::Header header{};
  header.magic = layout::magic;
  header.version = layout::version;
  header.file_bytes = sizeof(layout::File);
  header.next_id = header.changes = 1;
  set_text(header.boot, boot_name());
  if (pwrite(descriptor, &header, sizeof(header), 0) != static_cast<ssize_t>(sizeof(header)))
    return end(failed(path, "write", errno));
  const std::string source = temporary.empty() ? "/proc/self/fd/" + std::to_string(descriptor) : temporary;
  if (linkat(AT_FDCWD, source.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) != 0 && errno != EEXIST)
    return end(failed(path, "create", errno));
  return end({});
}

}  // namespace

Result<std::shared_ptr<Ledger>> Ledger::open(const LedgerOptions& options) {
  std::filesystem::path folder = options.folder;
  if (folder.empty()) {
    Result<std::string> found = runtime_folder();
    if (!found) return std::move(found).error();
    folder = *std::move(found);
  }
  const std::filesystem::path path = folder / file_name;
  auto mapping = std::make_unique<Mapping>();
  for (int attempt = 0; mapping->descriptor < 0; ++attempt) {
    mapping->descriptor = ::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (mapping->descriptor >= 0) break;
    if (errno == ELOOP) return broken(path, "it is a symbolic link");
    if (errno == EISDIR) return broken(path, "it is a folder");
    if (errno != ENOENT || attempt == 3) return failed(path, "open", errno);
    if (Result<void> made = create(folder, path); !made) return std::move(made).error();
  }
  struct stat about {};
  struct stat around {};
  if (fstat(mapping->descriptor, &about) != 0) return failed(path, "look at", errno);
  if (stat(folder.c_str(), &around) != 0) return failed(folder, "look at", errno);
  if (!S_ISREG(about.st_mode)) return broken(path, "it is not a plain file");
  const bool shared = (around.st_mode & 0022) != 0;
  if (!shared && about.st_uid != geteuid() && about.st_uid != 0) return broken(path, "it belongs to another user");
  if (!shared && (about.st_mode & 0022) != 0) return broken(path, "other users may write it");
  if (about.st_size < static_cast<off_t>(sizeof(layout::Header))) return broken(path, "it was cut short");
  layout::Header header{};
  if (pread(mapping->descriptor, &header, sizeof(header), 0) != static_cast<ssize_t>(sizeof(header)))
    return failed(path, "read", errno);
  if (header.magic != layout::magic) return broken(path, "it is something else");
  if (header.version != layout::version) {
    return broken(path, "its version is " + std::to_string(header.version) + ", this program knows version " +
                            std::to_string(layout::version));
  }
  if (header.file_bytes != sizeof(layout::File) || about.st_size != static_cast<off_t>(sizeof(layout::File)))
    return broken(path, "it was cut short");
  void* at = mmap(nullptr, sizeof(layout::File), PROT_READ | PROT_WRITE, MAP_SHARED, mapping->descriptor, 0);
  if (at == MAP_FAILED) return failed(path, "map", errno);
  mapping->file = static_cast<layout::File*>(at);

  std::shared_ptr<Ledger> ledger(new Ledger(path, options.clock ? *options.clock : real_clock(), std::move(mapping)));
  if (text_of(header.boot) != boot_name()) {
    // Nobody who held anything before the machine started again is still there.
    Result<Lock> lock = ledger->lock();
    if (!lock) return std::move(lock).error();
    layout::File& file = *ledger->mapping_->file;
    if (text_of(file.header.boot) != boot_name()) {
      for (layout::Entry& entry : file.entries) store(entry.state, 0);
      store(file.header.entries_used, 0);
      set_text(file.header.boot, boot_name());
    }
  }
  return ledger;
}

Result<Ledger::Lock> Ledger::lock(Duration patience) {
  mutex_.lock();
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  whole.l_len = 1;
  const TimePoint give_up = real_clock().now() + patience;
  for (Duration pause = std::chrono::microseconds(20);;
       pause = std::min<Duration>(2 * pause, std::chrono::milliseconds(5))) {
    if (fcntl(mapping_->descriptor, F_OFD_SETLK, &whole) == 0) break;
    const int error = errno;
    if ((error == EAGAIN || error == EACCES || error == EINTR) && real_clock().now() < give_up) {
      real_clock().sleep_for(pause);
      continue;
    }
    mutex_.unlock();
    if (error != EAGAIN && error != EACCES) return failed(path_, "lock", error);
    return Error{ErrorCode::timeout,
                 "another process holds the lock of " + path_.native() + " and does not let go",
                 "look for a stopped process that uses Berth: ps -A -o pid,stat,comm",
                 {},
                 {}};
  }
  Lock lock(*this);
  struct stat about {};
  if (fstat(mapping_->descriptor, &about) != 0 || about.st_size != static_cast<off_t>(sizeof(layout::File)))
    return broken(path_, "it was cut short");
  if (about.st_nlink == 0) {
    return Error{ErrorCode::unavailable,
                 path_.native() + " was removed while in use",
                 "restart this program to join the new one",
                 {},
                 {}};
  }
  return lock;
}

void Ledger::unlock() noexcept {
  struct flock whole {};
  whole.l_type = F_UNLCK;
  whole.l_whence = SEEK_SET;
  whole.l_len = 1;
  fcntl(mapping_->descriptor, F_OFD_SETLK, &whole);
  mutex_.unlock();
}

Ledger::Lock::~Lock() {
  if (ledger_) ledger_->unlock();
}

Book Ledger::Lock::book() {
  Mapping& mapping = *ledger_->mapping_;
  layout::File& file = *mapping.file;
  const TimePoint now = ledger_->clock_->now();
  Book book;
  for (std::size_t i = 0; i < mapping.used(); ++i) {
    layout::Entry& raw = file.entries[i];
    const std::uint64_t word = load(raw.state);
    if (word == 0) continue;
    const layout::Holder& who = raw.holders[word >> layout::holder_shift & 1];
    LedgerEntry entry;
    entry.id = word >> layout::id_shift;
    entry.holder = {static_cast<std::uint32_t>(load(who.pid)), load(who.start_time), load(who.pid_namespace)};
    entry.expires = to_optional(load(raw.expires_ns));
    const bool sound = is_kind(word & layout::kind_mask) && entry.holder.pid != 0;
    entry.state = sound ? static_cast<EntryState>(word & layout::kind_mask) : EntryState::waiting;
    const bool expired = entry.state == EntryState::reserved && entry.expires && *entry.expires <= now;
    if (!sound || expired || is_gone(entry.holder)) {
      mapping.free_entry(i);
      continue;
    }
    entry.user = static_cast<std::uint32_t>(load(raw.user));
    entry.name = text_of(raw.name);
    const std::uint64_t flags = load(raw.flags);
    entry.priority = static_cast<Priority>(std::min<std::uint64_t>(flags & 0xff, 2));
    entry.exclusive = (flags & layout::exclusive_flag) != 0;
    entry.since = to_time(load(raw.since_ns));
    entry.loads_until = to_optional(load(raw.loads_until_ns));
    entry.tried = load(raw.tried);
    entry.tried_at = to_time(load(raw.tried_at_ns));
    const std::size_t claims = std::min<std::uint64_t>(load(raw.claim_count), layout::claims_max);
    for (std::size_t c = 0; c < claims; ++c) {
      const std::uint64_t device = load(raw.claims[c].device);
      const std::size_t home = mapping.home_of(device);
      if (home >= layout::devices_max) continue;
      entry.claims.push_back(
          {DeviceId(text_of(file.devices[device].id)), text_of(file.devices[home].id), load(raw.claims[c].bytes)});
    }
    book.entries.push_back(std::move(entry));
  }
  std::sort(book.entries.begin(), book.entries.end(),
            [](const LedgerEntry& a, const LedgerEntry& b) { return a.id < b.id; });
  for (const layout::Device& row : file.devices) {
    if (load(row.ready) == 0) break;
    const std::uint64_t intent = load(row.intent);
    if (intent == static_cast<std::uint64_t>(Intent::cordoned) ||
        intent == static_cast<std::uint64_t>(Intent::draining))
      book.intents.emplace(text_of(row.id), static_cast<Intent>(intent));
  }
  book.changes = ledger_->changes();
  book.ended = ledger_->ended();
  book.next_id = load(file.header.next_id);
  return book;
}

Result<std::uint64_t> Ledger::Lock::add(const Request& request) {
  Mapping& mapping = *ledger_->mapping_;
  layout::File& file = *mapping.file;
  if (request.claims.size() > layout::claims_max) {
    return Error{ErrorCode::invalid_argument,
                 "an entry of the ledger holds at most " + std::to_string(layout::claims_max) + " devices",
                 "ask for fewer",
                 {},
                 {}};
  }
  std::vector<std::size_t> devices;
  for (const Claim& claim : request.claims) {
    const Result<std::size_t> placed = mapping.place_device(claim.device.text(), claim.memory_domain);
    if (!placed) return placed.error();
    devices.push_back(*placed);
  }
  std::size_t at = 0;
  while (at < layout::entries_max && load(file.entries[at].state) != 0) ++at;
  if (at == layout::entries_max) {
    return Error{ErrorCode::queue_full,
                 "the ledger has no room for another entry",
                 "end some of those that berth ps shows",
                 {},
                 {}};
  }
  // Whatever the file says, the number fits beside the state.
  const std::uint64_t id = std::max<std::uint64_t>(1, load(file.header.next_id) & layout::id_mask);
  store(file.header.next_id, id + 1);

  layout::Entry& entry = file.entries[at];
  entry.holders = {to_layout(request.holder), {}};
  entry.user = geteuid();
  entry.flags = static_cast<std::uint64_t>(request.priority) | (request.exclusive ? layout::exclusive_flag : 0);
  entry.since_ns = to_ns(ledger_->clock_->now());
  entry.expires_ns = to_ns(request.expires);
  entry.loads_until_ns = to_ns(request.loads_until);
  entry.tried = entry.tried_at_ns = 0;
  set_text(entry.name, request.name);
  for (std::size_t c = 0; c < devices.size(); ++c) {
    store(entry.claims[c].device, devices[c]);
    store(entry.claims[c].bytes, request.claims[c].memory_bytes);
  }
  store(entry.claim_count, devices.size());
  if (at >= mapping.used()) store(file.header.entries_used, at + 1);
  // From here on it counts, all of it. Those who promise without the lock see
  // it, or are seen by the sums below.
  store(entry.state, id << layout::id_shift | static_cast<std::uint64_t>(request.state));
  for (std::size_t c = 0; c < request.limits.size() && c < devices.size(); ++c) {
    if (mapping.promised(mapping.home_of(devices[c]), layout::entries_max) <= request.limits[c]) continue;
    mapping.free_entry(at);
    return Error{ErrorCode::unavailable,
                 "another process promised the bytes in the same instant",
                 "decide again",
                 request.claims[c].device.text(),
                 {}};
  }
  request.state == EntryState::waiting ? mapping.wake() : mapping.changed();
  return id;
}

namespace {
Error no_such_entry(std::uint64_t id) {
  return {ErrorCode::not_found,
          "the ledger has no entry " + std::to_string(id),
          "it expired, or was given back: see berth ps",
          {},
          {}};
}
}  // namespace

Result<void> Ledger::Lock::take(std::uint64_t id, const Holder& holder) {
  Mapping& mapping = *ledger_->mapping_;
  const std::optional<std::size_t> at = mapping.find_entry(id);
  if (!at) return no_such_entry(id);
  layout::Entry& entry = mapping.file->entries[*at];
  // Written beside the one that counts, which one store then changes.
  const std::uint64_t other = (load(entry.state) >> layout::holder_shift & 1) ^ 1;
  entry.holders[other] = to_layout(holder);
  store(entry.state,
        id << layout::id_shift | other << layout::holder_shift | static_cast<std::uint64_t>(EntryState::taken));
  mapping.changed();
  return {};
}

Result<void> Ledger::Lock::release(std::uint64_t id) {
  Mapping& mapping = *ledger_->mapping_;
  const std::optional<std::size_t> at = mapping.find_entry(id);
  if (!at) return no_such_entry(id);
  mapping.free_entry(*at);
  return {};
}

Result<void> Ledger::Lock::note_tried(std::uint64_t id) {
  Mapping& mapping = *ledger_->mapping_;
  const std::optional<std::size_t> at = mapping.find_entry(id);
  if (!at) return no_such_entry(id);
  layout::Entry& entry = mapping.file->entries[*at];
  store(entry.tried, ledger_->changes());
  store(entry.tried_at_ns, to_ns(ledger_->clock_->now()));
  mapping.wake();
  return {};
}

Result<void> Ledger::Lock::set_intent(const DeviceId& device, Intent intent) {
  Mapping& mapping = *ledger_->mapping_;
  const std::optional<std::size_t> known = mapping.find_device(device.text());
  if (!known && intent == Intent::in_service) return {};
  const Result<std::size_t> row = known ? Result<std::size_t>(*known) : mapping.place_device(device.text(), {});
  if (!row) return row.error();
  store(mapping.file->devices[*row].intent, static_cast<std::uint64_t>(intent));
  mapping.changed();
  return {};
}

std::uint64_t Ledger::changes() const noexcept { return load(mapping_->file->header.changes); }

std::uint64_t Ledger::ended() const noexcept { return load(mapping_->file->header.ended); }

void Ledger::wait_for_change(std::uint64_t seen, TimePoint until) {
  if (changes() != seen) return;
  const Duration left = until - clock_->now();
  if (left <= Duration::zero()) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  timespec time{};
  time.tv_sec = seconds.count();
  time.tv_nsec = static_cast<long>((left - seconds).count());
  syscall(SYS_futex, mapping_->sleep_word(), FUTEX_WAIT, static_cast<std::uint32_t>(seen), &time, nullptr, 0);
}

Result<std::unique_ptr<Ledger::Row>> Ledger::open_row(const std::shared_ptr<Ledger>& ledger, std::string name) {
  Result<Lock> lock = ledger->lock();
  if (!lock) return std::move(lock).error();
  lock->book();  // gives back what the dead held
  Request request;
  request.state = EntryState::pool;
  request.holder = this_process();
  request.name = std::move(name);
  const Result<std::uint64_t> id = lock->add(request);
  if (!id) return id.error();
  const std::optional<std::size_t> at = ledger->mapping_->find_entry(*id);
  BERTH_ASSERT(at);
  return std::unique_ptr<Row>(new Row(ledger, *id, *at));
}

Ledger::Row::Row(std::shared_ptr<Ledger> ledger, std::uint64_t id, std::size_t entry) noexcept
    : ledger_(std::move(ledger)),
      id_(id),
      entry_(entry),
      lease_([] {
        const char* const lease = std::getenv("BERTH_LEASE");
        return lease ? std::strtoull(lease, nullptr, 10) : 0;
      }()),
      first_promise_(&ledger_->mapping_->file->entries[entry].claims[0].bytes),
      entries_used_(&ledger_->mapping_->file->header.entries_used) {}

Result<std::size_t> Ledger::Row::add_claim(const DeviceId& device, const std::string& memory_domain) {
  Result<Lock> lock = ledger_->lock();
  if (!lock) return std::move(lock).error();
  Mapping& mapping = *ledger_->mapping_;
  const Result<std::size_t> placed = mapping.place_device(device.text(), memory_domain);
  if (!placed) return placed;
  layout::Entry& entry = mapping.file->entries[entry_];
  const std::size_t count = std::min<std::uint64_t>(load(entry.claim_count), layout::claims_max);
  for (std::size_t c = 0; c < count; ++c) {
    if (mapping.home_of(load(entry.claims[c].device)) == mapping.home_of(*placed)) return c;
  }
  if (count == layout::claims_max) {
    return Error{ErrorCode::queue_full,
                 "an entry of the ledger holds at most " + std::to_string(count) + " devices",
                 {},
                 device.text(),
                 {}};
  }
  store(entry.claims[count].device, *placed);
  store(entry.claims[count].bytes, 0);
  store(entry.claim_count, count + 1);
  return count;
}

Ledger::Row::~Row() {
  // Where the lock cannot be had, the entry returns when this process ends.
  if (Result<Lock> lock = ledger_->lock()) static_cast<void>(lock->release(id_));
}

static_assert(sizeof(layout::Claim) == 2 * sizeof(std::uint64_t));

bool Ledger::Row::fits_beside_others(std::size_t claim, std::uint64_t bytes, std::uint64_t left) noexcept {
  if (promised_by_others(claim) <= left) return true;
  give_back(claim, bytes);
  return false;
}

void Ledger::Row::give_back(std::size_t claim, std::uint64_t bytes) noexcept {
  __atomic_fetch_sub(promised_at(claim), bytes, __ATOMIC_SEQ_CST);
}

std::uint64_t Ledger::Row::promised_by_others(std::size_t claim) const noexcept {
  const Mapping& mapping = *ledger_->mapping_;
  const layout::Entry& own = mapping.file->entries[entry_];
  return mapping.promised(mapping.home_of(load(own.claims[claim].device)), entry_, lease_);
}

std::pair<std::uint32_t, bool> Ledger::Row::other_holders(const Book& book, const DeviceId& device) const {
  Book others;
  for (const LedgerEntry& entry : book.entries) {
    if (entry.id != id_ && entry.id != lease_) others.entries.push_back(entry);
  }
  return {others.holders(device), others.held_exclusively(device)};
}

}  // namespace berth
