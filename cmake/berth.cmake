# One target per folder of src/, its tests (x_test.cpp beside x.cpp) in one binary. A folder
# links only what it may see, so an arrow in the wrong direction does not link.
#   berth_library(NAME SEES folder...): goes into berth::berth, which embedders link
#   berth_service(NAME SEES folder...): for the command and its services, never in berth::berth
set(BERTH_WARNINGS -Wall -Wextra -Wpedantic)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  # std::stable_sort of GCC's library uses what that library declares deprecated.
  list(APPEND BERTH_WARNINGS -Wno-deprecated-declarations)
endif()
set(BERTH_TEST_SECONDS 400)  # ends what hangs, also on a busy machine
if(BERTH_SANITIZE)
  add_compile_options(-fsanitize=${BERTH_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${BERTH_SANITIZE})
  add_compile_definitions(BERTH_SANITIZED=1)  # for tests of many random cases
  set(BERTH_FEWER_CASES " max_success=30")  # of each law
  if(BERTH_SANITIZE MATCHES thread AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    add_compile_options(-Wno-tsan)
  endif()
endif()

if(BERTH_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# An entry that cannot run in this build is listed all the same, and says why it is skipped (scripts/skips reads that).
function(berth_skipped name reason)
  add_test(NAME ${name} COMMAND sh -c "echo '[  SKIPPED ] ${reason}'; exit 77")
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
endfunction()

# Parses the headers once for all targets of one kind (the same compile options), and compiles several
# sources of a folder at once. So no two sources of a folder may give one name to
# different things, which is easier to read too. `make nightly` builds the preset dev, which goes without, so
# that a source with a missing include is found.
option(BERTH_QUICK_BUILD "Precompile the headers of the standard library, compile several sources at once" OFF)
function(berth_quick_build target kind)
  if(NOT BERTH_QUICK_BUILD)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
  get_property(first GLOBAL PROPERTY BERTH_PRECOMPILED_${kind})
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    target_precompile_headers(${target} PRIVATE ${ARGN})
    set_property(GLOBAL PROPERTY BERTH_PRECOMPILED_${kind} ${target})
  endif()
endfunction()
set(BERTH_COMMON_HEADERS <algorithm> <array> <atomic> <chrono> <condition_variable> <filesystem> <functional> <map>
  <memory> <mutex> <optional> <set> <span> <string> <string_view> <thread> <utility> <vector>)

function(berth_library name)
  berth_folder(${name} ${ARGN})
  set_property(GLOBAL APPEND PROPERTY BERTH_LIBRARIES berth_${name})
  install(TARGETS berth_${name} EXPORT berth ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

function(berth_service name)
  if(NOT BERTH_HAS_SERVICES)
    if(BERTH_TESTS)
      berth_skipped(${name}_test BuiltWithoutServices)
    endif()
    return()
  endif()
  berth_folder(${name} SERVICE ${ARGN})
  set_property(GLOBAL APPEND PROPERTY BERTH_SERVICES berth_${name})
endfunction()

function(berth_folder name)
  cmake_parse_arguments(ARG "SERVICE" "" "SEES;LIBRARIES;TEST_LABELS;TEST_ENVIRONMENT" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "(_test|/main)\\.cpp$")

  add_library(berth_${name} STATIC ${sources})
  add_library(berth::${name} ALIAS berth_${name})
  set_target_properties(berth_${name} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_compile_features(berth_${name} PUBLIC cxx_std_20)
  target_compile_options(berth_${name} PRIVATE ${BERTH_WARNINGS})
  if(ARG_SERVICE)
    berth_quick_build(berth_${name} service ${BERTH_COMMON_HEADERS} <boost/json.hpp>)
    set(test_options SERVICE)
  else()
    berth_quick_build(berth_${name} library ${BERTH_COMMON_HEADERS})
    set(test_options)
  endif()
  target_include_directories(berth_${name}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    PRIVATE ${PROJECT_SOURCE_DIR}/src)
  if(EXISTS ${BERTH_BUNDLE})
    target_include_directories(berth_${name} SYSTEM PRIVATE ${BERTH_BUNDLE})
  endif()
  foreach(seen ${ARG_SEES})
    target_link_libraries(berth_${name} PUBLIC berth_${seen})
  endforeach()
  target_link_libraries(berth_${name} PUBLIC ${ARG_LIBRARIES})

  if(BERTH_TESTS AND tests)
    berth_test(${name}_test ${test_options} SOURCES ${tests} LIBRARIES berth_${name} LABELS ${ARG_TEST_LABELS}
      ENVIRONMENT ${ARG_TEST_ENVIRONMENT})
  endif()
endfunction()

# What every test and example runs with in a sanitizer build.
set(BERTH_SANITIZER_ENVIRONMENT
  # Tests fork; by default ThreadSanitizer ends a forked process that starts a thread.
  "TSAN_OPTIONS=die_after_fork=0"
  # std::stable_sort of GCC 12's library frees its buffer with the size it asked for,
  # not the one it got. And a thread on which PoCL compiles gets LLVM's stack for signals,
  # which AddressSanitizer would take for its own when the thread ends.
  "ASAN_OPTIONS=new_delete_type_mismatch=0:use_sigaltstack=0"
  "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/leaks.suppressions:print_suppressions=0")

# berth_test(NAME [SERVICE] SOURCES ... LIBRARIES ... LABELS ...): one binary, one entry. SERVICE: its sources read JSON.
# Labels: asan, tsan (run under that sanitizer in CI), gpu (needs a GPU).
function(berth_test name)
  cmake_parse_arguments(ARG "SERVICE" "" "SOURCES;LIBRARIES;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT GTest_FOUND)
    berth_skipped(${name} BuiltWithoutGoogleTest)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  # What is tested is optimised as the preset says; the tests themselves compile in
  # half the time without.
  target_compile_options(${name} PRIVATE ${BERTH_WARNINGS} -O0)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  # Where tests find the example files.
  target_compile_definitions(${name} PRIVATE BERTH_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(EXISTS ${BERTH_BUNDLE})
    target_include_directories(${name} SYSTEM PRIVATE ${BERTH_BUNDLE})
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} GTest::gtest GTest::gtest_main)
  if(ARG_SERVICE)
    berth_quick_build(${name} service_test ${BERTH_COMMON_HEADERS} <gtest/gtest.h> <boost/json.hpp>)
  else()
    berth_quick_build(${name} test ${BERTH_COMMON_HEADERS} <gtest/gtest.h>)
  endif()
  # Property tests run where rapidcheck is installed (Debian), not on a bare GPU machine.
  if(BERTH_RAPIDCHECK AND BERTH_RAPIDCHECK_INCLUDE)
    target_link_libraries(${name} PRIVATE ${BERTH_RAPIDCHECK})
    target_compile_definitions(${name} PRIVATE BERTH_HAS_RAPIDCHECK=1)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  # The same random cases in every run, fewer under sanitizers; make soak draws new ones.
  list(APPEND ARG_ENVIRONMENT "RC_PARAMS=seed=20261115${BERTH_FEWER_CASES}")
  # A ledger of its own: what a test promises concerns nobody else.
  list(APPEND ARG_ENVIRONMENT "BERTH_RUNTIME_DIR=${CMAKE_CURRENT_BINARY_DIR}/${name}.runtime")
  list(APPEND ARG_ENVIRONMENT ${BERTH_SANITIZER_ENVIRONMENT})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" ENVIRONMENT "${ARG_ENVIRONMENT}"
    SKIP_RETURN_CODE 77 TIMEOUT ${BERTH_TEST_SECONDS})
endfunction()
