# Events of TPUs: one sink for all of them, and Eventarc's triggers for the methods that its catalogue has. An event only says "look":
# when the same one comes both ways, the function drops the second, or the second pass finds nothing to do.

locals {
  # Nothing under tpu.googleapis.com says that a slice was preempted; the system events of its VMs do, which are ordinary instances.
  # Clients write method names of either version. Long-running calls write an entry when they are accepted, which is no news, and one when
  # they have ended. What is refused at once has neither mark: whoever called was told. A system event is one entry.
  audit_filter = join(" OR ", [
    join(" AND ", [
      "(log_id(\"cloudaudit.googleapis.com/activity\")",
      "protoPayload.serviceName=\"tpu.googleapis.com\"",
      "protoPayload.methodName=~\"^google\\.cloud\\.tpu\\.(v2|v2alpha1)\\.Tpu\\.\"",
      "operation.last=true)",
    ]),
    join(" AND ", [
      "(log_id(\"cloudaudit.googleapis.com/system_event\")",
      "protoPayload.serviceName=\"compute.googleapis.com\"",
      "protoPayload.resourceName=~\"/instances/t1v-n-[^/]+-w-[0-9]+$\")",
    ]),
  ])

  # Eventarc's catalogue of audit events has these of version 2, and no method of queued resources.
  eventarc_methods = toset(["DeleteNode", "StartNode", "StopNode", "UpdateNode"])
}

resource "google_logging_project_sink" "tpu_events" {
  project                = var.project
  name                   = "rekindle-tpu-events"
  description            = "Audit entries of TPUs and system events of their VMs, for Rekindle."
  destination            = "pubsub.googleapis.com/${google_pubsub_topic.topic["tpu-events"].id}"
  filter                 = local.audit_filter
  unique_writer_identity = true
}

resource "google_eventarc_trigger" "tpu" {
  for_each = local.eventarc_methods

  project = var.project
  # An audit trigger in a region sees that region's entries only; TPUs are everywhere.
  location        = "global"
  name            = "rekindle-${lower(each.value)}"
  service_account = var.emails["eventarc"]

  matching_criteria {
    attribute = "type"
    value     = "google.cloud.audit.log.v1.written"
  }
  matching_criteria {
    attribute = "serviceName"
    value     = "tpu.googleapis.com"
  }
  matching_criteria {
    attribute = "methodName"
    value     = "google.cloud.tpu.v2.Tpu.${each.value}"
  }

  destination {
    cloud_run_service {
      service = var.services["events"]
      region  = var.region
      path    = "/functions/tpu-events"
    }
  }

  depends_on = [var.eventarc_ready]
}
