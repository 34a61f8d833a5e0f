#pragma once

namespace lockstep {

#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// How often a test tries a law: under sanitizers, where each try takes twenty times as long, a
// fifth, since the other build tries them all. Never for what bytes of strangers may do.
template <class T>
constexpr T tries(T all) {
  return kSanitized ? all / 5 : all;
}

}  // namespace lockstep
