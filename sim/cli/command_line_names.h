#pragma once

// CLI11's header costs a unit that includes it 3 s of the compiler: who passes these on needs their
// names only.
namespace CLI {
class App;
class Option;
}  // namespace CLI
