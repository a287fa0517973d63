-- A shop of recorded music, shaped as the public Chinook sample is: eleven tables, their keys and references.
-- Made up: the rows, what a deleted parent does to its children, the trigger and the view.
CREATE TABLE Artist (ArtistId INTEGER PRIMARY KEY NOT NULL, Name NVARCHAR(120));
CREATE TABLE Genre (GenreId INTEGER PRIMARY KEY NOT NULL, Name NVARCHAR(120));
CREATE TABLE MediaType (MediaTypeId INTEGER PRIMARY KEY NOT NULL, Name NVARCHAR(120));
CREATE TABLE Playlist (PlaylistId INTEGER PRIMARY KEY NOT NULL, Name NVARCHAR(120));
CREATE TABLE Album (
    AlbumId INTEGER PRIMARY KEY NOT NULL,
    Title NVARCHAR(160) NOT NULL,
    ArtistId INTEGER NOT NULL REFERENCES Artist (ArtistId) ON DELETE CASCADE ON UPDATE CASCADE
);
CREATE TABLE Track (
    TrackId INTEGER PRIMARY KEY NOT NULL,
    Name NVARCHAR(200) NOT NULL,
    AlbumId INTEGER REFERENCES Album (AlbumId) ON DELETE CASCADE ON UPDATE CASCADE,
    MediaTypeId INTEGER NOT NULL REFERENCES MediaType (MediaTypeId) ON DELETE NO ACTION ON UPDATE CASCADE,
    GenreId INTEGER REFERENCES Genre (GenreId) ON DELETE SET NULL ON UPDATE SET NULL,
    Composer NVARCHAR(220),
    Milliseconds INTEGER NOT NULL,
    Bytes INTEGER,
    UnitPrice NUMERIC(10,2) NOT NULL
);
CREATE TABLE PlaylistTrack (
    PlaylistId INTEGER NOT NULL REFERENCES Playlist (PlaylistId) ON DELETE CASCADE ON UPDATE CASCADE,
    TrackId INTEGER NOT NULL REFERENCES Track (TrackId) ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT PK_PlaylistTrack PRIMARY KEY (PlaylistId, TrackId)
);
CREATE TABLE Employee (
    EmployeeId INTEGER PRIMARY KEY NOT NULL,
    LastName NVARCHAR(20) NOT NULL,
    FirstName NVARCHAR(20) NOT NULL,
    Title NVARCHAR(30),
    ReportsTo INTEGER REFERENCES Employee (EmployeeId) ON DELETE SET NULL ON UPDATE CASCADE,
    BirthDate DATETIME,
    HireDate DATETIME,
    Email NVARCHAR(60)
);
CREATE TABLE Customer (
    CustomerId INTEGER PRIMARY KEY NOT NULL,
    FirstName NVARCHAR(40) NOT NULL,
    LastName NVARCHAR(20) NOT NULL,
    Company NVARCHAR(80),
    Country NVARCHAR(40),
    Email NVARCHAR(60) NOT NULL UNIQUE,
    SupportRepId INTEGER REFERENCES Employee (EmployeeId) ON DELETE SET NULL ON UPDATE CASCADE
);
CREATE TABLE Invoice (
    InvoiceId INTEGER PRIMARY KEY NOT NULL,
    CustomerId INTEGER NOT NULL REFERENCES Customer (CustomerId) ON DELETE NO ACTION ON UPDATE NO ACTION,
    InvoiceDate DATETIME NOT NULL,
    BillingCountry NVARCHAR(40),
    Total NUMERIC(10,2) NOT NULL
);
CREATE TABLE InvoiceLine (
    InvoiceLineId INTEGER PRIMARY KEY NOT NULL,
    InvoiceId INTEGER NOT NULL REFERENCES Invoice (InvoiceId) ON DELETE CASCADE ON UPDATE CASCADE,
    TrackId INTEGER NOT NULL REFERENCES Track (TrackId) ON DELETE CASCADE ON UPDATE CASCADE,
    UnitPrice NUMERIC(10,2) NOT NULL,
    Quantity INTEGER NOT NULL CHECK (Quantity <> 0)
);
CREATE INDEX IFK_AlbumArtistId ON Album (ArtistId);
CREATE INDEX IFK_TrackAlbumId ON Track (AlbumId);
CREATE INDEX IFK_PlaylistTrackTrackId ON PlaylistTrack (TrackId);
CREATE INDEX IFK_InvoiceLineInvoiceId ON InvoiceLine (InvoiceId);
CREATE INDEX IFK_InvoiceLineTrackId ON InvoiceLine (TrackId);
CREATE VIEW Sales AS
    SELECT BillingCountry, count(*) AS Invoices, sum(Total) AS Total FROM Invoice GROUP BY BillingCountry;
CREATE TRIGGER LineSold AFTER INSERT ON InvoiceLine BEGIN
    UPDATE Invoice SET Total = round(Total + new.UnitPrice * new.Quantity, 2) WHERE InvoiceId = new.InvoiceId;
END;
CREATE TRIGGER LineTakenBack AFTER DELETE ON InvoiceLine BEGIN
    UPDATE Invoice SET Total = round(Total - old.UnitPrice * old.Quantity, 2) WHERE InvoiceId = old.InvoiceId;
END;
WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 30)
    INSERT INTO Artist SELECT i, 'Artist ' || i FROM n;
WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 8)
    INSERT INTO Genre SELECT i, 'Genre ' || i FROM n;
INSERT INTO MediaType VALUES (1, 'AAC'), (2, 'MPEG'), (3, 'Lossless');
INSERT INTO Playlist VALUES (1, 'Music'), (2, 'Grünes Licht'), (3, 'It''s 5 o''clock'), (4, NULL), (5, '');
WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 50)
    INSERT INTO Album SELECT i, 'Title "' || i || '"', 1 + i % 30 FROM n;
WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 200)
    INSERT INTO Track SELECT i, 'Song ' || i, 1 + i % 50, 1 + i % 3, nullif(i % 9, 0), iif(i % 4, 'Composer ' || i % 7, NULL),
        180000 + i * 997, 5000000000 + i, iif(i % 10, 0.99, 2) FROM n;
INSERT INTO PlaylistTrack SELECT PlaylistId, TrackId FROM Playlist, Track WHERE TrackId % (PlaylistId + 3) = 0;
INSERT INTO Employee VALUES
    (1, 'Adams', 'Andrew', 'Head', NULL, '1962-02-18 00:00:00', '2002-08-14 00:00:00', 'andrew@shop.test'),
    (2, 'Edwards', 'Nancy', 'Sales', 1, '1958-12-08 00:00:00', '2002-05-01 00:00:00', 'nancy@shop.test'),
    (3, 'Peacock', 'Jane', 'Sales', 2, '1973-08-29 00:00:00', NULL, NULL);
WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 25)
    INSERT INTO Customer SELECT i, 'First ' || i, 'Last ' || i, iif(i % 3, NULL, 'Company ' || i), 'Country ' || i % 5,
        'customer' || i || '@shop.test', 2 + i % 2 FROM n;
WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 60)
    INSERT INTO Invoice SELECT i, 1 + i % 25, date('2021-01-01', i || ' days') || ' 00:00:00', 'Country ' || i % 5, 0 FROM n;
WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 150)
    INSERT INTO InvoiceLine SELECT i, 1 + i % 60, 1 + i % 200, 0.99, 1 + i % 2 FROM n;
