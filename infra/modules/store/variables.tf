variable "project" {
  description = "Project id."
  type        = string
}

variable "location" {
  description = "Region of the database, which can never be changed: that of the services."
  type        = string
}

variable "database" {
  description = "Name of the database. One of its own, so that rights and rules touch nobody else's documents."
  type        = string
}

variable "indexes_file" {
  description = "File with composite indexes, time-to-live fields and index exemptions, in the form of the Firebase command line."
  type        = string
}
