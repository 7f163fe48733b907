# Counts of log lines. A test looks for each quoted message in the programs that write it.

locals {
  services = "resource.type=\"cloud_run_revision\" AND resource.labels.service_name=~\"^rekindle-(api|events|reconcile)$\""

  refused = "jsonPayload.message=(\"a call without a good token was refused\" OR \"a caller who may not call here was refused\")"

  # The platform's own word: also what was made by hand.
  create_failures = join(" AND ", [
    "log_id(\"cloudaudit.googleapis.com/activity\")",
    "protoPayload.serviceName=\"tpu.googleapis.com\"",
    "protoPayload.methodName=~\"^google\\.cloud\\.tpu\\.(v2|v2alpha1)\\.Tpu\\.Create(Node|QueuedResource)$\"",
    "severity>=ERROR",
  ])

  # What should never be.
  alarms = "${local.services} AND jsonPayload.message:(${join(" OR ", [
    "\"an orphan was deleted\"",
    "\"an orphan is left alone: the store knows no intent of it, look at the store\"",
    "\"too many orphans at once; none is deleted\"",
    "\"resources of this installation are older than its store; no sweep, look at the store\"",
    "\"the provider made something else, which is deleted\"",
    "\"a delete is not allowed, and its TPU is paid for\"",
    "\"the list of TPUs has failed\"",
    # On a database that is empty by mistake: the TPUs of the one before are nobody's there.
    "\"a new installation was made in this store\"",
    "\"a decision broke a rule; nothing was committed\"",
    "\"the document of a job is full; nothing was committed\"",
    "\"a handler panicked\"",
    "\"a job is left out of a list\"",
  ])})"
  # How such a line's message begins, without what it goes on with, such as a name: each value is a series, and an incident.
  what = "REGEXP_EXTRACT(jsonPayload.message, \"^([A-Za-z ]+)\")"

  metrics = {
    ticks = {
      description = "Ticks that ran to their end."
      filter      = "${local.services} AND jsonPayload.message=\"the tick ran to its end\""
    }
    unusable = {
      description = "Messages that could not be used, recorded and forwarded."
      filter      = "${local.services} AND jsonPayload.message=\"a message cannot be used\""
    }
    refused-callers = {
      description = "Calls without a right token."
      filter      = "${local.services} AND ${local.refused}"
    }
    create-failures = {
      description = "Creates of nodes and queued resources that failed: stockout, quota, no permission."
      filter      = local.create_failures
    }
  }
}

resource "google_logging_metric" "metric" {
  for_each = local.metrics

  project     = var.project
  name        = "rekindle/${each.key}"
  description = each.value.description
  filter      = each.value.filter

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "INT64"
    unit        = "1"
  }
}

# What should never be, by its sort.
resource "google_logging_metric" "alarms" {
  project     = var.project
  name        = "rekindle/alarms"
  description = "A TPU that no job owned (deleted, or held back), that was made as something else, or that may not be deleted, a list of TPUs that fails, a new installation, a pass whose decision broke a rule, a job whose document is full, a handler that panicked, a job whose document cannot be read."
  filter      = local.alarms

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "INT64"
    unit        = "1"

    labels {
      key         = "what"
      value_type  = "STRING"
      description = "How the line's message begins."
    }
  }

  label_extractors = { what = local.what }
}
