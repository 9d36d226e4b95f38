/* commands.h: the subcommands. A new one is a file, a line here and a row in main.c. */
#ifndef TOOLS_TIDE_COMMANDS_H
#define TOOLS_TIDE_COMMANDS_H

#include "tools/tide/cli.h"

extern const struct cli_command cli_command_config;
extern const struct cli_command cli_command_doctor;
extern const struct cli_command cli_command_export;
extern const struct cli_command cli_command_finetune;
extern const struct cli_command cli_command_inspect;
extern const struct cli_command cli_command_plan;
extern const struct cli_command cli_command_report;
extern const struct cli_command cli_command_tokenize;

#endif
