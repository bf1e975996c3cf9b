import { Alert } from 'antd';
import { useMemo } from 'react';
import { useTranslation } from 'react-i18next';
import { parseCsv } from '../../../components/list/csvText';
import { ScrollArea } from '../../../components/ScrollArea';
import { separatorOf } from './kinds';
import { visible } from '../../../i18n/userText';

const MAX_ROWS = 200;
const MAX_COLUMNS = 50;

/** The first rows of a CSV or TSV file as a table. */
export function TablePreview({ name, text }: { name: string; text: string }) {
  const { t } = useTranslation();
  const rows = useMemo(() => {
    try {
      return parseCsv(text, separatorOf(name), MAX_ROWS + 1).map(({ cells }) =>
        cells.slice(0, MAX_COLUMNS)
      );
    } catch {
      return null;
    }
  }, [name, text]);
  if (rows === null) {
    return <Alert type="warning" showIcon title={t('preview.bad-table')} />;
  }
  const [titles, ...records] = rows;
  return (
    <>
      <ScrollArea label={visible(name)}>
        <table className="bai-preview-table">
          <thead>
            <tr>
              {titles?.map((title, index) => (
                <th key={index} scope="col">
                  {title}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {records.slice(0, MAX_ROWS).map((record, index) => (
              <tr key={index}>
                {record.map((cell, column) => (
                  <td key={column}>{cell}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </ScrollArea>
      {records.length >= MAX_ROWS && <p>{t('preview.first-rows', { count: MAX_ROWS })}</p>}
    </>
  );
}
