#include "placement/view_candidates.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

namespace berth::placement {
namespace {

using detail::Columns;

constexpr std::size_t column_count = 9;

Columns columns_at(Columns::Word* words, Columns::Info* infos, std::size_t count) {
  const auto next = [&] { return std::exchange(words, words + count); };
  Columns columns;
  columns.status = next();
  columns.backlog_ns = next();
  columns.charged_offset = next();
  columns.unit_ns = next();
  columns.mean_rate = next();
  columns.memory_free = next();
  columns.memory_promised = next();
  columns.memory_home = next();
  columns.reported = next();
  columns.info = infos;
  return columns;
}

constexpr std::uint64_t unknown_half = 0xffffffff;
std::uint64_t half(OptionalU64 value) { return value ? std::min(*value, unknown_half - 1) : unknown_half; }

void fill(const DeviceView& view, std::size_t slot, const Columns& columns) {
  const auto store = [slot](Columns::Word* column, std::uint64_t value) {
    column[slot].store(value, std::memory_order_relaxed);
  };
  store(columns.status, view.weight_milli | std::min<std::uint64_t>(view.id_order, 0xfff) << Columns::id_order_shift |
                            static_cast<std::uint64_t>(view.health) << Columns::health_shift);
  store(columns.backlog_ns, view.backlog_ns);
  store(columns.charged_offset, view.charged_total);
  store(columns.unit_ns, view.unit_cost_ns.raw());
  store(columns.mean_rate, view.mean_rate ? std::bit_cast<std::uint64_t>(*view.mean_rate) : OptionalU64().raw());
  store(columns.memory_free, view.memory_bytes_free.raw());
  store(columns.memory_promised, view.memory_bytes_promised);
  store(columns.memory_home, slot);
  store(columns.reported, half(view.queue_depth) << 32 | half(view.active_streams));
  columns.info[slot].store(view.info, std::memory_order_relaxed);
}

std::vector<std::uint32_t> numbers_below(std::size_t count) {
  std::vector<std::uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0U);
  return numbers;
}

}  // namespace

ViewCandidates::ViewCandidates(std::span<const DeviceView> views, std::span<const std::uint32_t> positions,
                               const Requirements& requirements, Ticket ticket)
    : words_(new Columns::Word[column_count * positions.size()]),
      infos_(new Columns::Info[positions.size()]),
      columns_used_(numbers_below(positions.size())),
      slots_(positions.size()),
      charges_(positions.size()),
      columns_(columns_at(words_.get(), infos_.get(), positions.size())),
      candidates_(columns_, columns_used_.data(), charges_.data(), positions.size(), requirements, ticket,
                  slots_.data()) {
  for (std::size_t slot = 0; slot < positions.size(); ++slot) {
    const DeviceView& view = views[positions[slot]];
    fill(view, slot, columns_);
    slots_[slot] = view.slot;
    // Work in flight beyond what a pool can count ranks as that maximum.
    charges_[slot] = std::min<std::uint64_t>(view.in_flight, Columns::in_flight_mask);
  }
}

ViewCandidates::ViewCandidates(std::span<const DeviceView> views, const Requirements& requirements, Ticket ticket)
    : ViewCandidates(views, numbers_below(views.size()), requirements, ticket) {}

}  // namespace berth::placement
