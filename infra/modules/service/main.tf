# The three services: one image, each with its own subcommand, account, concurrency, timeout and callers.

locals {
  # Cloud Run's addresses can be told beforehand, so that a service can know its own.
  urls = { for name in keys(local.services) : name => "https://rekindle-${name}-${var.project_number}.${var.region}.run.app" }

  services = {
    # People and agents: short calls, and logs that are followed for minutes.
    api = {
      ingress     = "INGRESS_TRAFFIC_ALL"
      concurrency = 200
      timeout     = "900s"
      instances   = 10
      audiences   = []
      callers     = {}
    }
    # Decode, look up, publish.
    events = {
      ingress     = "INGRESS_TRAFFIC_INTERNAL_ONLY"
      concurrency = 80
      timeout     = "60s"
      instances   = 10
      # Eventarc chooses the audience of its tokens: it may name the address that Cloud Run chose, whose middle is known only afterwards.
      # Cloud Run has checked by then that it is this service's.
      audiences = ["https://rekindle-events-*.a.run.app"]
      callers = {
        REKINDLE_PUSH_CALLERS     = var.emails["push"]
        REKINDLE_EVENTARC_CALLERS = var.emails["eventarc"]
      }
    }
    # Passes wait for the TPU API. The handlers' own deadline is 25 s.
    reconcile = {
      ingress     = "INGRESS_TRAFFIC_INTERNAL_ONLY"
      concurrency = 40
      timeout     = "60s"
      instances   = 5
      audiences   = []
      callers = {
        REKINDLE_PUSH_CALLERS      = var.emails["push"]
        REKINDLE_TASKS_CALLERS     = var.emails["tasks"]
        REKINDLE_SCHEDULER_CALLERS = var.emails["scheduler"]
      }
    }
  }

  environment = { for name, s in local.services : name => merge(
    var.environment,
    s.callers,
    {
      REKINDLE_API_URL       = local.urls["api"]
      REKINDLE_RECONCILE_URL = local.urls["reconcile"]
      # Cloud Run checks the signature and takes it off; the service checks account, audience and expiry.
      REKINDLE_AUTH      = "platform"
      REKINDLE_AUDIENCES = join(",", concat([local.urls[name]], s.audiences))
    },
  ) }
}

resource "google_cloud_run_v2_service" "service" {
  for_each = local.services

  project     = var.project
  name        = "rekindle-${each.key}"
  location    = var.region
  description = "Rekindle: ${each.key}."
  ingress     = each.value.ingress
  # The address that tokens name, whatever other address Cloud Run gives the service.
  custom_audiences    = [local.urls[each.key]]
  deletion_protection = false
  # Said, for the same reason as the traffic below: without the check anyone may call, and what a token says is taken unsigned.
  invoker_iam_disabled = false

  template {
    service_account                  = var.emails[each.key]
    timeout                          = each.value.timeout
    max_instance_request_concurrency = each.value.concurrency
    execution_environment            = "EXECUTION_ENVIRONMENT_GEN2"

    scaling {
      min_instance_count = 0
      max_instance_count = each.value.instances
    }

    # Bells go to workers' own addresses; everything else leaves as from any service.
    dynamic "vpc_access" {
      for_each = each.key == "reconcile" ? [var.bells] : []
      content {
        egress = "PRIVATE_RANGES_ONLY"
        network_interfaces {
          network    = vpc_access.value.network
          subnetwork = vpc_access.value.subnetwork
        }
      }
    }

    containers {
      image = var.image
      args  = [each.key]

      ports {
        container_port = 8080
      }

      resources {
        limits            = { cpu = "1", memory = "512Mi" }
        cpu_idle          = true
        startup_cpu_boost = true
      }

      dynamic "env" {
        for_each = local.environment[each.key]
        content {
          name  = env.key
          value = env.value
        }
      }

      # Ready once the store answers.
      startup_probe {
        period_seconds    = 1
        timeout_seconds   = 1
        failure_threshold = 60
        http_get {
          path = "/ready"
        }
      }

      # The process answers, whatever the state of the store. Seldom, since each probe is billed as a request's time; what hangs shows in calls that fail.
      liveness_probe {
        period_seconds    = 600
        timeout_seconds   = 5
        failure_threshold = 2
        http_get {
          path = "/live"
        }
      }
    }
  }

  # Said, so that an apply ends what `gcloud run services update-traffic` began: left out, the provider keeps whatever is there.
  traffic {
    type    = "TRAFFIC_TARGET_ALLOCATION_TYPE_LATEST"
    percent = 100
  }

  depends_on = [var.ready]
}
