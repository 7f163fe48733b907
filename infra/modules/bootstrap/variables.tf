variable "project" {
  description = "Project id."
  type        = string
}

variable "region" {
  description = "Region of the image registry, near the services."
  type        = string
}

variable "bucket_locations" {
  description = "Where checkpoints, logs and bundles lie: one region or multi-region, or two regions of one continent (a dual-region)."
  type        = list(string)
}

variable "zones" {
  description = "Zones in which TPUs may be created."
  type        = list(string)
}
