# Target lockstep::xxhash; Debian ships no package file of it. Installed beside LockstepTorch.cmake.
find_path(LOCKSTEP_XXHASH_INCLUDE xxhash.h REQUIRED)
find_library(LOCKSTEP_XXHASH xxhash REQUIRED)
add_library(lockstep::xxhash INTERFACE IMPORTED GLOBAL)
target_include_directories(lockstep::xxhash INTERFACE ${LOCKSTEP_XXHASH_INCLUDE})
target_link_libraries(lockstep::xxhash INTERFACE ${LOCKSTEP_XXHASH})
