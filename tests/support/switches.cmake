# Tests that run under more than the default switches. Of alloc, batch and free each row has a value
# apiece, in this order; with the default, cluster_on_async, every pair of values occurs.
include_guard(GLOBAL)
set(CSWAP_SWITCH_ROWS global_off_async global_on_sync cluster_off_sync)

# usage: cswap_switches_of(ROW VARIABLE)
function(cswap_switches_of row variable)
  string(REGEX REPLACE "(.*)_(.*)_(.*)" "alloc=\\1 batch=\\2 free=\\3" switches ${row})
  set(${variable} "${switches}" PARENT_SCOPE)
endfunction()

# Adds the test NAME, and NAME@ROW for each row.
# usage: cswap_add_switched_test(NAME LABEL TIMEOUT_SECONDS ROWS COMMAND [ARGUMENT...])
function(cswap_add_switched_test name label timeout rows)
  add_test(NAME ${name} COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT ${timeout})
  foreach(row ${rows})
    cswap_switches_of(${row} switches)
    add_test(NAME ${name}@${row} COMMAND ${ARGN})
    set_tests_properties(${name}@${row} PROPERTIES LABELS ${label} TIMEOUT ${timeout}
                         ENVIRONMENT "CSWAP_TEST_SWITCHES=${switches}")
  endforeach()
endfunction()
