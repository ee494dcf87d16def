"""The columns that are read, for each table of the second original system. Values of other columns are only counted."""

from __future__ import annotations

_NODE = "run_id node_id iteration"
_READ = {
    "_smithers_nodes": f"{_NODE} state last_attempt output_table label updated_at_ms",
    "_smithers_ralph": "run_id ralph_id iteration done updated_at_ms",
    "_smithers_approvals": f"{_NODE} status requested_at_ms decided_at_ms note decided_by request_json decision_json"
    " auto_approved",
    "_smithers_human_requests": f"{_NODE} request_id kind status prompt schema_json options_json response_json"
    " requested_at_ms answered_at_ms answered_by timeout_at_ms",
    "_smithers_events": "run_id seq timestamp_ms type payload_json",
    "_smithers_signals": "run_id seq signal_name correlation_id payload_json received_at_ms received_by",
    "_smithers_frames": "run_id frame_no created_at_ms xml_json xml_hash encoding mounted_task_ids_json task_index_json"
    " note",
    "_smithers_tool_calls": f"{_NODE} attempt seq tool_name input_json output_json started_at_ms finished_at_ms status"
    " error_json",
    "_smithers_scorers": f"{_NODE} id attempt scorer_id scorer_name source score reason meta_json input_json"
    " output_json latency_ms scored_at_ms duration_ms",
    "_smithers_cron": "cron_id pattern workflow_path enabled created_at_ms last_run_at_ms next_run_at_ms error_json",
    "_smithers_cache": "cache_key created_at_ms workflow_name node_id output_table schema_sig agent_sig tools_sig"
    " jj_pointer payload_json",
    "_smithers_vectors": "id namespace content embedding dimensions metadata_json document_id chunk_index"
    " created_at_ms",
}
#: The known columns by table, for tables whose other columns cannot be stored here.
COLUMNS = {table: frozenset(columns.split()) for table, columns in _READ.items()}
