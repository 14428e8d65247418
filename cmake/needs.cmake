# What this machine has of what Berth needs. Where something is missing, what needs it is not built, and its tests are
# listed as skipped (berth_skipped in berth.cmake): a machine on which nothing can be installed builds and tests the rest.
# ./setup lists what each package is for.

# Headers a GPU machine lacks travel in this ignored folder (make gpu-bundle).
set(BERTH_BUNDLE ${PROJECT_SOURCE_DIR}/gpu-bundle/include)
list(APPEND CMAKE_PREFIX_PATH ${PROJECT_SOURCE_DIR}/gpu-bundle)

# Compilers newer than those of CI guess differently; what they say is shown and stops nothing.
if((CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    OR (CMAKE_CXX_COMPILER_ID MATCHES Clang AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 20))
  set(CMAKE_COMPILE_WARNING_AS_ERROR OFF)
endif()

# Found anew in every configuration: they may have been installed since.
function(berth_find_headers variable)
  set(missing)
  foreach(header ${ARGN})
    find_path(found ${header} HINTS ${BERTH_BUNDLE} NO_CACHE)
    if(NOT found)
      list(APPEND missing ${header})
    endif()
    unset(found)
  endforeach()
  set(${variable} ${missing} PARENT_SCOPE)
endfunction()

set(BERTH_CAN_COMPILE ON)
berth_find_headers(missing xxhash.h toml++/toml.h CL/cl.h)
if(missing)
  list(JOIN missing ", " missing)
  if(NOT PROJECT_IS_TOP_LEVEL)
    message(FATAL_ERROR "Berth needs ${missing}; its ./setup installs them")
  endif()
  set(BERTH_CAN_COMPILE OFF)
  message(STATUS "missing: nothing is compiled without ${missing} (./setup; without a network, make gpu-bundle on another machine)")
endif()

# The fleet's services and the command.
set(BERTH_HAS_SERVICES ON)
berth_find_headers(missing boost/json.hpp boost/beast.hpp)
find_package(OpenSSL QUIET)
if(NOT OpenSSL_FOUND)
  list(APPEND missing openssl/ssl.h)
endif()
berth_find_headers(missing_of_command CLI/CLI.hpp)
set(BERTH_CLI_DEFAULT ${PROJECT_IS_TOP_LEVEL})
if(missing OR missing_of_command)
  set(BERTH_CLI_DEFAULT OFF)
  if(missing)
    set(BERTH_HAS_SERVICES OFF)
  endif()
  if(PROJECT_IS_TOP_LEVEL)
    list(JOIN missing ", " missing)
    message(STATUS "missing: the command is not built without ${missing} ${missing_of_command}")
  endif()
endif()

# Each of these is done without where it is missing: the store in a file, gzipped traces, property tests.
find_package(SQLite3 QUIET)
find_package(ZLIB QUIET)
if(PROJECT_IS_TOP_LEVEL)
  find_library(BERTH_RAPIDCHECK rapidcheck)
  find_path(BERTH_RAPIDCHECK_INCLUDE rapidcheck.h)
  find_package(GTest QUIET)
  if(NOT GTest_FOUND)
    message(STATUS "missing: no C++ test is built without GoogleTest")
  endif()
endif()
