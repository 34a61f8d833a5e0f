#include "reducer/registry.h"

namespace lockstep {
namespace {

Registry<ReducerFactory>& reducers() {
  static Registry<ReducerFactory> known("reducer");
  return known;
}

}  // namespace

bool register_reducer(const std::string& name, ReducerFactory factory) {
  return reducers().add(name, std::move(factory));
}

std::unique_ptr<Reducer> make_registered_reducer(const ReducerParts& parts) {
  return reducers().get(parts.options.name)(parts);
}

}  // namespace lockstep
