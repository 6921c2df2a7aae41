# Checks that the pages contain the tables that bench/tables makes from docs/tables, and that the programs in PROGRAMS
# accept the command of every row. The check must find a changed figure, and refuse a misspelled method and programs
# without a commit. Needs neither matplotlib nor datasets.
set(python ${PYTHON} -B)
set(tables ${SOURCE}/bench/tables)

function(expect_error code pattern)
  execute_process(COMMAND ${python} ${ARGN} RESULT_VARIABLE result ERROR_VARIABLE error)
  if(NOT result EQUAL ${code} OR NOT error MATCHES "${pattern}")
    message(SEND_ERROR "${ARGN}: exit code ${result}\n${error}")
  endif()
endfunction()

execute_process(COMMAND ${python} ${tables}/update_page.py --check ${PROGRAMS} RESULT_VARIABLE result ERROR_VARIABLE error)
if(NOT result EQUAL 0)
  message(SEND_ERROR "update_page.py --check: exit code ${result}\n${error}")
endif()

file(READ ${SOURCE}/docs/convergence.md page)
string(REGEX REPLACE "(\n\\| birder \\| )5\\.[0-9]+" "\\14.999" changed "${page}")
if(changed STREQUAL page)
  message(SEND_ERROR "docs/convergence.md has no row of birder to change")
endif()
file(WRITE ${BINARY}/tables_test/convergence.md "${changed}")
file(COPY ${SOURCE}/docs/ablations.md DESTINATION ${BINARY}/tables_test)
expect_error(1 "the table mlm_bert_tiny is not what bench/tables/mlm_bert_tiny.py --print prints"
             ${tables}/update_page.py --check ${PROGRAMS} --docs ${BINARY}/tables_test --only mlm_bert_tiny)

expect_error(2 "no such method: adawm; available: adamw, " ${tables}/mlm_bert_tiny.py --print --methods adawm)
expect_error(2 "--programs needs --commit HASH" ${tables}/mlm_bert_tiny.py --programs ${PROGRAMS})
expect_error(2 "--commit is the commit of --programs DIR" ${tables}/mlm_bert_tiny.py --commit HEAD)
expect_error(2 "--lr and --flags need --repeat" ${tables}/mlm_bert_tiny.py --lr 0.1)
expect_error(1 "no-such-commit: no such commit" ${tables}/mlm_bert_tiny.py --programs ${PROGRAMS} --commit no-such-commit)
