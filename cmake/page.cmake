# The page (web/): built with npm and Vite, and embedded. BERTH_PAGE_DIST is the folder with its files, and is not set where
# the program is built without it.
#
# Its packages are fetched here, once, as their lock file names them: what they need is a network, and whether there is one decides
# what is built. Their install scripts are not run (web/.npmrc).
find_program(BERTH_NODE NAMES node nodejs)
find_program(BERTH_NPM npm)
if(NOT DEFINED BERTH_PAGE AND BERTH_CLI AND BERTH_NODE AND BERTH_NPM)
  set(BERTH_PAGE ON)  # and, the first time, a network
endif()
if(NOT BERTH_PAGE)
  message(STATUS "page: not built (BERTH_PAGE is off, or node and npm are missing)")
  return()
endif()
if(NOT BERTH_NODE OR NOT BERTH_NPM)
  message(FATAL_ERROR "BERTH_PAGE needs node and npm: install them (./setup), or configure with -DBERTH_PAGE=OFF")
endif()

set(web ${PROJECT_SOURCE_DIR}/web)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${web}/package-lock.json)
file(SHA256 ${web}/package-lock.json wanted)
set(stamp ${web}/node_modules/.berth-lock)
set(installed "")
if(EXISTS ${stamp})
  file(READ ${stamp} installed)
endif()
if(NOT installed STREQUAL wanted)
  message(STATUS "page: fetching its packages")
  execute_process(COMMAND ${BERTH_NPM} ci --silent WORKING_DIRECTORY ${web} RESULT_VARIABLE failed TIMEOUT 300
    OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(failed)
    message(STATUS "page: not built, npm could not fetch its packages (is there a network? in web/, npm ci says more)")
    return()
  endif()
  file(WRITE ${stamp} ${wanted})
endif()

set(BERTH_PAGE_DIST ${PROJECT_BINARY_DIR}/page/dist)
set_property(GLOBAL PROPERTY BERTH_PAGE_DIST ${BERTH_PAGE_DIST})
file(GLOB_RECURSE page_inputs CONFIGURE_DEPENDS ${web}/src/* ${web}/public/*)
add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/page/page_files.cpp
  COMMAND ${BERTH_NODE} node_modules/vite/bin/vite.js build --logLevel warn --emptyOutDir --outDir ${BERTH_PAGE_DIST}
  COMMAND ${BERTH_NODE} embed.mjs ${BERTH_PAGE_DIST} ${PROJECT_BINARY_DIR}/page/page_files.cpp
  WORKING_DIRECTORY ${web}
  DEPENDS ${page_inputs} ${web}/index.html ${web}/vite.config.js ${web}/svelte.config.js ${web}/embed.mjs ${stamp}
  COMMENT "Building the page" VERBATIM)
