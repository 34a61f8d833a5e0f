#include "sim/calibrate/row_context.h"

namespace lockstep {

double RowContext::passes_of(const PublishedRow& row) const {
  return static_cast<double>(row.passes.value_or(said_passes_));
}

Place RowContext::place_of(const PublishedRow& row) const {
  Place place{row.ranks, row.cap_mb, row.passes};
  if (row.samples && fitted.samples)
    place.batch = *row.samples / passes_of(row) / (*fitted.samples / passes_of(fitted));
  return place;
}

bool RowContext::crosses_hosts(int64_t ranks) const {
  return base.machine.cost.tables.empty() && simulator.crosses_hosts(base.machine, ranks);
}

bool RowContext::goes_across() const {
  return base.machine.cost.ranks_per_host <= 1 || crosses_hosts(fitted.ranks);
}

}  // namespace lockstep
