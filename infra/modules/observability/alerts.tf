# What people are told of.

locals {
  metric_type = { for name, m in google_logging_metric.metric : name => "logging.googleapis.com/user/${m.name}" }

  # Log lines: more than so many within the window.
  lines = {
    orphans = {
      title    = "TPUs that no job owned"
      resource = "cloud_run_revision"
      above    = 0
      window   = "300s"
      severity = "ERROR"
      runbook  = "leaked-tpu.md"
    }
    invariants = {
      title    = "A pass broke a rule"
      resource = "cloud_run_revision"
      above    = 0
      window   = "300s"
      severity = "CRITICAL"
      runbook  = "stuck-job.md"
    }
    panics = {
      title    = "A handler panicked"
      resource = "cloud_run_revision"
      above    = 0
      window   = "300s"
      severity = "CRITICAL"
      runbook  = "stuck-job.md"
    }
    # Stockouts are daily bread; this many in an hour means that something else is wrong, such as a quota.
    create-failures = {
      title    = "Many creates fail"
      resource = "audited_resource"
      above    = 30
      window   = "3600s"
      severity = "WARNING"
      runbook  = "quota.md"
    }
    refused-callers = {
      title    = "Many calls without a right token"
      resource = "cloud_run_revision"
      above    = 20
      window   = "900s"
      severity = "WARNING"
      runbook  = "key-rotation.md"
    }
  }
}

resource "google_monitoring_notification_channel" "email" {
  for_each = toset(var.emails)

  project      = var.project
  display_name = "Rekindle: ${each.value}"
  type         = "email"
  labels       = { email_address = each.value }
}

locals {
  channels = [for c in google_monitoring_notification_channel.email : c.name]
}

resource "google_monitoring_alert_policy" "lines" {
  for_each = local.lines

  project               = var.project
  display_name          = "Rekindle: ${each.value.title}"
  combiner              = "OR"
  severity              = each.value.severity
  notification_channels = local.channels

  conditions {
    display_name = each.value.title
    condition_threshold {
      filter          = "resource.type = \"${each.value.resource}\" AND metric.type = \"${local.metric_type[each.key]}\""
      comparison      = "COMPARISON_GT"
      threshold_value = each.value.above
      duration        = "0s"
      aggregations {
        alignment_period     = each.value.window
        per_series_aligner   = "ALIGN_DELTA"
        cross_series_reducer = "REDUCE_SUM"
      }
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "See infra/runbooks/${each.value.runbook}."
  }
}

resource "google_monitoring_alert_policy" "tick" {
  project               = var.project
  display_name          = "Rekindle: no tick"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = local.channels

  conditions {
    display_name = "no tick for five minutes"
    condition_absent {
      filter   = "resource.type = \"cloud_run_revision\" AND metric.type = \"${local.metric_type["ticks"]}\""
      duration = "300s"
      aggregations {
        alignment_period     = "60s"
        per_series_aligner   = "ALIGN_DELTA"
        cross_series_reducer = "REDUCE_SUM"
      }
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "Cloud Scheduler's job rekindle-tick, or the service rekindle-reconcile, does not run. See infra/runbooks/stuck-job.md."
  }
}

resource "google_monitoring_alert_policy" "oldest_message" {
  project               = var.project
  display_name          = "Rekindle: messages wait"
  combiner              = "OR"
  severity              = "ERROR"
  notification_channels = local.channels

  conditions {
    display_name = "a message has waited for ten minutes"
    condition_threshold {
      filter = join(" AND ", [
        "resource.type = \"pubsub_subscription\"",
        "metric.type = \"pubsub.googleapis.com/subscription/oldest_unacked_message_age\"",
        "resource.labels.subscription_id = monitoring.regex.full_match(\"rekindle-.*-push\")",
      ])
      comparison      = "COMPARISON_GT"
      threshold_value = 600
      duration        = "120s"
      aggregations {
        alignment_period   = "60s"
        per_series_aligner = "ALIGN_MAX"
      }
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "See infra/runbooks/stuck-job.md."
  }
}

resource "google_monitoring_alert_policy" "dead_letters" {
  project               = var.project
  display_name          = "Rekindle: dead letters"
  combiner              = "OR"
  severity              = "WARNING"
  notification_channels = local.channels

  conditions {
    display_name = "a message could not be used"
    condition_threshold {
      filter = join(" AND ", [
        "resource.type = \"pubsub_subscription\"",
        "metric.type = \"pubsub.googleapis.com/subscription/num_undelivered_messages\"",
        "resource.labels.subscription_id = \"rekindle-dead-letter-pull\"",
      ])
      comparison      = "COMPARISON_GT"
      threshold_value = 0
      duration        = "0s"
      aggregations {
        alignment_period   = "60s"
        per_series_aligner = "ALIGN_MAX"
      }
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "See infra/runbooks/dead-letters.md."
  }
}

resource "google_billing_budget" "month" {
  count = var.billing_account == null ? 0 : 1

  billing_account = var.billing_account
  display_name    = "Rekindle in ${var.project}"

  budget_filter {
    projects = ["projects/${var.project_number}"]
  }

  amount {
    specified_amount {
      units = tostring(ceil(var.max_usd_per_day * 31))
    }
  }

  threshold_rules {
    threshold_percent = 0.5
  }
  threshold_rules {
    threshold_percent = 0.9
  }
  threshold_rules {
    threshold_percent = 1
    spend_basis       = "FORECASTED_SPEND"
  }
}
